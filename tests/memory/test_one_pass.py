"""Readings of a folder and searches by the compiled loops are those of float64, in a large memory."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import forward_ad

from regard.attention.kernels import kernel
from regard.attention.shapes import ShapeError
from regard.memory import Memory, one_pass, search_loops
from regard.memory import vectors as vector_files
from regard.memory.reading_loops import fold
from regard.normalisers import Softmax
from regard.scores import Additive, Cosine, Dot, General, ScaledDot, SoftCap

ROWS, WIDTH = 300, 19


@pytest.fixture(autouse=True)
def calls(monkeypatch):
    """How often the loops were called; blocks are small, and no memory is too small."""
    one_pass.LOOPS.wait()
    calls, part_of = [], one_pass.part_of
    monkeypatch.setattr(vector_files, "BLOCK", 64 * WIDTH * 4)
    monkeypatch.setattr("regard.memory.reading.LEAST", 0)
    monkeypatch.setattr(one_pass, "part_of", lambda *a: calls.append(1) or part_of(*a))
    return calls


def folder(path, score, dtype=torch.float32, normaliser=None, d_value=5):
    generator = torch.Generator().manual_seed(0)
    memory = Memory.open(path / "m", write=True, score=score, normaliser=normaliser)
    keys, values = (torch.randn(ROWS, width, generator=generator) for width in (WIDTH, d_value))
    keys[7] = 0
    memory.write(keys.to(dtype), *([values.to(dtype)] if d_value != WIDTH else []))
    return memory


def exact(memory, query, mask=None):
    wide = Memory(score=memory.score, normaliser=memory.normaliser).double()
    wide.write(memory.keys.double(), memory.values.double())
    return wide.read(query.double(), mask=mask)


@torch.no_grad()
def test_a_mask_in_any_layout_compiles_nothing_in_its_reading(calls):
    keys, query = torch.randn(ROWS, WIDTH), torch.randn(2, WIDTH)
    memory = Memory()
    memory.write(keys, keys)
    mask = torch.rand(ROWS, 2) < 0.5
    memory.read(query, mask=mask.mT.contiguous())
    compiled = sum(fold.stats.cache_misses.values()) + len(fold.signatures)
    for readable in (mask.mT, mask.new_ones(2, 1), mask[:1].mT):
        reading = memory.read(query, mask=readable)
        torch.testing.assert_close(
            reading.double(), exact(memory, query, readable), rtol=1e-5, atol=1e-6
        )
    assert len(calls) == 4
    assert sum(fold.stats.cache_misses.values()) + len(fold.signatures) == compiled


@torch.no_grad()
def test_derivatives_forwards(tmp_path):
    query = torch.randn(2, WIDTH, generator=torch.Generator().manual_seed(1))
    with folder(tmp_path, Dot()) as stored:
        memory = Memory(score=Dot())
        memory.write(stored.keys, stored.values)
        expected = torch.func.jvp(memory.read, (query,), (query,))[1]
        for each in (memory, stored):
            with forward_ad.dual_level():
                reading = each.read(forward_ad.make_dual(query, query))
                tangent = forward_ad.unpack_dual(reading).tangent
            torch.testing.assert_close(tangent, expected)


def test_a_folder_of_two_precisions_compiles_nothing_in_its_reading(tmp_path, calls):
    compiled = sum(fold.stats.cache_misses.values())
    generator = torch.Generator().manual_seed(0)
    keys, values = (torch.randn(ROWS, width, generator=generator) for width in (WIDTH, 5))
    query = torch.randn(1, WIDTH, generator=generator)
    for key, value in ((torch.float16, torch.float32), (torch.float32, torch.bfloat16)):
        memory = Memory.open(tmp_path / str(key), write=True)
        memory.write(keys.to(key), values.to(value))
        calls.clear()
        reading = memory.read(query)
        assert len(calls) == 1
        torch.testing.assert_close(reading.double(), exact(memory, query), rtol=1e-5, atol=1e-6)
    assert sum(fold.stats.cache_misses.values()) == compiled


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "score", [ScaledDot(), Dot(), Cosine(20.0), General(WIDTH, WIDTH).double()], ids=str
)
@pytest.mark.parametrize("d_value", [5, WIDTH], ids=["values", "keys alone"])
@torch.no_grad()
def test_a_reading_is_exact(tmp_path, calls, score, dtype, d_value):
    query = torch.randn(3, WIDTH, generator=torch.Generator().manual_seed(1)) / 2
    mask = torch.rand(3, ROWS, generator=torch.Generator().manual_seed(2)) < 0.5
    mask[1] = False
    mask[2, :64] = False  # a whole block
    with folder(tmp_path, score, dtype, Softmax(0.7), d_value) as memory:
        torch.testing.assert_close(
            memory.read(query).double(), exact(memory, query), rtol=1e-6, atol=2e-6
        )
        memory.delete([5, 250])
        readable = mask.clone()
        readable[:, [5, 250]] = False
        reading = memory.read(query, mask=mask)
        torch.testing.assert_close(
            reading.double(), exact(memory, query, readable), rtol=1e-6, atol=2e-6
        )
        assert not reading[1].any()
        assert memory.read(query[0], mask=mask[:1]).shape == (1, d_value)
    assert len(calls) == 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("score", [ScaledDot(), Cosine(20.0)], ids=str)
@torch.no_grad()
def test_a_reading_in_ram_is_exact_and_a_masked_entry_has_no_effect(
    calls, monkeypatch, score, dtype
):
    monkeypatch.setattr("regard.memory.reading.AT_ONCE", 64)
    generator = torch.Generator().manual_seed(0)
    keys, values = (torch.randn(ROWS, width, generator=generator) for width in (WIDTH, 5))
    query = torch.randn(2, WIDTH, generator=generator).to(dtype)
    mask = torch.rand(2, ROWS, generator=generator) < 0.5
    memory = Memory(score=score, normaliser=Softmax(0.7))
    memory.write(keys.to(dtype), values.to(dtype))
    for readable in (None, mask, mask[:1], mask.new_ones(2, 1)):
        reading = memory.read(query.float(), mask=readable)
        torch.testing.assert_close(
            reading.double(), exact(memory, query, readable), rtol=1e-6, atol=5e-6
        )
    memory.values[3] = torch.inf
    mask[:, 3] = False
    assert memory.read(query, mask=mask).isfinite().all()
    assert len(calls) == 5
    with kernel("reference"):
        memory.read(query)
    memory.read(query.repeat(3, 1))
    memory.read(query, mask=mask[None])
    memory.double().read(query)
    assert len(calls) == 5


@torch.no_grad()
def test_threads_read_as_one_does_and_end_where_one_fails(tmp_path, monkeypatch):
    query = torch.randn(2, WIDTH, generator=torch.Generator().manual_seed(1))
    loaded, failures = vector_files.VectorFile.loaded, []

    def load(file, start, *rest):
        if start and failures:
            raise KeyboardInterrupt
        return loaded(file, start, *rest)

    monkeypatch.setattr(vector_files.VectorFile, "loaded", load)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    with folder(tmp_path, Dot()) as memory:
        torch.testing.assert_close(memory.read(query), exact(memory, query).float())
        failures.append(1)
        with pytest.raises(KeyboardInterrupt):
            memory.read(query)


def test_scores_that_grow_and_scores_that_overflow(tmp_path, calls):
    with folder(tmp_path, Dot()) as memory:
        memory.write(torch.linspace(0, 90, ROWS)[:, None].expand(-1, WIDTH), torch.randn(ROWS, 5))
        query = torch.ones(1, WIDTH)
        torch.testing.assert_close(memory.read(query), exact(memory, query).float())
        assert memory.read(query * 3e38).isnan().all()
    assert len(calls) == 2


@pytest.mark.parametrize("width", [WIDTH - 1, WIDTH + 1, 1 << 20])
@pytest.mark.parametrize("score", [ScaledDot(), Cosine()], ids=str)
def test_a_query_of_another_width_is_refused(tmp_path, score, width):
    """The loops would read what lies behind the keys."""
    with folder(tmp_path, score) as memory, pytest.raises(ShapeError, match=f"{width} wide"):
        memory.read(torch.ones(1, width))


@torch.no_grad()
def test_general_with_queries_of_another_width(tmp_path, calls):
    with folder(tmp_path, General(6, WIDTH).double()) as memory:
        query = torch.randn(2, 6)
        torch.testing.assert_close(memory.read(query), exact(memory, query).float())
    assert calls


def test_masks_with_batch_axes_and_masks_of_other_queries(tmp_path):
    masks, query = torch.rand(2, 3, ROWS) < 0.5, torch.randn(3, WIDTH)
    with folder(tmp_path, None) as memory:
        torch.testing.assert_close(
            memory.read(query, mask=masks), exact(memory, query, masks).float()
        )
        with pytest.raises(ShapeError, match="mask covers 2 queries, there are 3"):
            memory.read(query, mask=masks[0, :2])


@pytest.mark.parametrize(
    ("score", "query"),
    [
        (None, torch.full((1, WIDTH), torch.nan)),
        (None, torch.randn(one_pass.FEW + 1, WIDTH)),
        (None, torch.randn(2, 1, WIDTH)),
        (None, torch.randn(1, WIDTH, requires_grad=True)),
        (SoftCap(Dot(), 5.0), torch.randn(1, WIDTH)),
        (Additive(WIDTH, WIDTH, 4), torch.randn(1, WIDTH)),
    ],
    ids=["not a number", "many", "batch", "gradient", "cap", "additive"],
)
def test_readings_that_torch_computes(tmp_path, calls, score, query):
    with folder(tmp_path, score) as memory:
        reading = memory.read(query)
        score = memory.score if score is None else score
        wide = Memory(score=score)
        wide.write(memory.keys, memory.values)
        torch.testing.assert_close(reading, wide.read(query), equal_nan=True)
    assert not calls


@pytest.fixture
def searches(monkeypatch):
    """How often a search was served by the loops; blocks are small."""
    answers, best_of = [], one_pass.best_of
    monkeypatch.setattr(one_pass, "block_rows", lambda queries: 37)
    monkeypatch.setattr(one_pass, "best_of", lambda *a: answers.append(best_of(*a)) or answers[-1])
    return answers


def expected(memory, query, k, live=None):
    """The best weights of a search in float64; of equal scores the first."""
    scores = memory.score or ScaledDot()
    scores = scores(query.double(), memory.keys.double()) / memory.normaliser.temperature
    if live is not None:
        scores[:, ~live] = -torch.inf
    weights, places = scores.softmax(-1).sort(dim=-1, descending=True, stable=True)
    return weights[:, :k], places[:, :k]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "score", [ScaledDot(), Dot(), Cosine(20.0), General(WIDTH, WIDTH).double()], ids=str
)
@pytest.mark.parametrize("queries", [1, 3, one_pass.FEW + 4])
@torch.no_grad()
def test_a_search_is_exact(tmp_path, searches, score, dtype, queries):
    memory = folder(tmp_path, score, dtype, Softmax(0.7))
    in_ram = Memory(score=score, normaliser=Softmax(0.7))
    in_ram.write(memory.keys)
    query = torch.randn(queries, WIDTH, generator=torch.Generator().manual_seed(1)) / 2
    more, live = torch.randn(50, WIDTH).to(dtype), torch.ones(ROWS + 50, dtype=torch.bool)

    def check(store, live=None):
        result = store.find(query, 9)
        weights, places = expected(store, query, 9, live)
        torch.testing.assert_close(result.weights, weights.float(), rtol=1e-5, atol=1e-7)
        assert torch.equal(result.positions, places)

    with memory:
        for store in (memory, in_ram):
            check(store)
            store.write(more, *([torch.randn(50, 5).to(dtype)] if store is memory else []))
            check(store)
        memory.delete(places := memory.find(query[:1], 2).positions.flatten())
        live[places] = False
        check(memory, live)
    assert len(searches) == 6
    assert None not in searches


@given(st.data())
@torch.no_grad()
def test_equal_keys_come_in_their_order(data):
    """Small whole numbers: scores are exact, and many keys are equal or zero."""
    rows, width, queries = (data.draw(st.integers(1, most)) for most in (90, 9, 7))
    k, seed = data.draw(st.integers(1, 12)), data.draw(st.integers(0, 999))
    generator = torch.Generator().manual_seed(seed)
    memory = Memory(score=Dot(), normaliser=Softmax())
    memory.write(torch.randint(-1, 2, (rows, width), generator=generator).float())
    query = torch.randint(-2, 3, (2, queries, width), generator=generator).float()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.memory.reading.LEAST", 0)
        patch.setattr(one_pass, "block_rows", lambda queries: 16)
        result = memory.find(query, k)
    weights, places = expected(memory, query.flatten(0, 1), k)
    assert torch.equal(result.positions.flatten(0, 1), places)
    torch.testing.assert_close(result.weights.flatten(0, 1), weights.float())


@torch.no_grad()
def test_equal_keys_have_equal_scores_wherever_they_stand(searches):
    """A matrix product sums in another order at the end of a block."""
    key, query = torch.randn(1, 129), torch.randn(8, 129)
    memory = Memory(score=Cosine(20.0))
    memory.write(torch.cat([key.expand(101, -1), -query]))
    assert memory.find(key.expand(8, -1), 60).positions.tolist() == [list(range(60))] * 8
    assert len(searches) == 1


@torch.no_grad()
def test_a_search_of_narrow_keys_holds_few_scores(tmp_path, monkeypatch):
    """A block of a folder has the more keys, the narrower they are."""
    sizes, collect = [], search_loops.collect
    monkeypatch.setattr(search_loops, "collect", lambda *a: sizes.append(a[4].size) or collect(*a))
    monkeypatch.setattr(vector_files, "BLOCK", 1 << 21)
    with Memory.open(tmp_path / "m", write=True) as memory:
        memory.write(torch.randn(3000, 2))
        memory.delete(1500)
        query = torch.randn(200, 2)
        places = memory.find(query, 2).positions
        live = torch.ones(3000, dtype=torch.bool).index_fill_(0, torch.tensor(1500), False)
        scores = (query @ memory.keys.T).masked_fill(~live, -torch.inf)
    assert torch.equal(places, scores.topk(2).indices)
    assert sum(sizes) == 3000 * 200
    assert max(sizes) <= one_pass.block_rows(200) * 200


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@torch.no_grad()
def test_a_key_that_is_no_number_is_not_taken_for_one_that_is_too_short(dtype):
    memory, query = Memory(score=Cosine()), torch.randn(1, WIDTH)
    memory.write(torch.randn(40, WIDTH).to(dtype))
    memory.keys[7, 3] = torch.nan
    assert memory.find(query, 3).weights.isnan().all()


@torch.no_grad()
def test_a_piece_of_keys_that_are_no_numbers_is_not_left_out(monkeypatch):
    monkeypatch.setattr(one_pass, "block_rows", lambda queries: 16)
    memory, query = Memory(), torch.randn(1, WIDTH)
    memory.write(torch.randn(48, WIDTH))
    memory.keys[16:32] = torch.nan
    assert memory.find(query, 3).weights.isnan().all()


@pytest.mark.parametrize(
    "change",
    [
        lambda memory: memory.keys.fill_(torch.nan),
        lambda memory: memory.keys.fill_(torch.inf),
        lambda memory: memory.keys.mul_(3e38),
        lambda memory: memory.double(),
    ],
    ids=["not a number", "infinite", "overflow", "float64"],
)
def test_searches_that_torch_computes(searches, change):
    memory = Memory()
    memory.write(torch.randn(40, 6))
    with torch.no_grad():
        change(memory)
        query = torch.ones(1, 6, dtype=memory.keys.dtype)
        weights = memory.find(query, 3).weights
        torch.testing.assert_close(
            weights, memory.look(query).top(3)[0], equal_nan=True, check_dtype=False
        )
    assert not any(searches)


def test_a_search_with_gradients_and_one_for_many_entries_are_of_torch(searches):
    memory = Memory(trainable="keys")
    memory.write(torch.randn(100, 6))
    assert memory.find(torch.ones(1, 6)).weights.requires_grad
    with torch.no_grad():
        assert memory.find(torch.ones(1, 6), 100).weights.sum().allclose(torch.tensor(1.0))
    assert not searches


def test_while_loops_are_compiled_torch_searches(searches, monkeypatch):
    memory = Memory()
    memory.write(torch.randn(50, 6))
    ready = [False, True]
    monkeypatch.setattr(one_pass.LOOPS, "ready", lambda: ready.pop(0))
    before, after = (memory.find(torch.ones(1, 6), 3) for _ in range(2))
    assert len(searches) == 1
    assert torch.equal(before.positions, after.positions)
    torch.testing.assert_close(before.weights, after.weights)
