"""Readings of a folder by the compiled loops are those of float64, for few queries in a large memory."""

import pytest
import torch

from regard.attention.shapes import ShapeError
from regard.memory import Memory, one_pass, stored
from regard.memory import vectors as vector_files
from regard.normalisers import Softmax
from regard.scores import Additive, Cosine, Dot, General, ScaledDot, SoftCap

ROWS, WIDTH = 300, 19


@pytest.fixture(autouse=True)
def calls(monkeypatch):
    """How often the loops were called; blocks are small, and no memory is too small."""
    calls, part_of = [], one_pass.part_of
    monkeypatch.setattr(vector_files, "BLOCK", 64 * WIDTH * 4)
    monkeypatch.setattr(stored, "SMALL", 0)
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
