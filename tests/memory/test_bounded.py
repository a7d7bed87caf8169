"""Readings with a tolerance: what they leave out is never more than they say."""

import itertools
import os
import signal
from pathlib import Path

import pytest
import torch
from torch import Tensor

import regard
from regard.attention.shapes import ShapeError
from regard.memory import BoundedReading, Memory, MemoryFileError, bounded, codes
from regard.memory import vectors as vector_files
from regard.normalisers import Softmax
from regard.scores import Additive, Cosine, Dot, General, ScaledDot, SoftCap
from regard.translation.text.corpora import Pair
from regard.translation.translator import Translator

ENTRIES, WIDTH = 500, 16
SUBJECTS = [
    ("El gato", "The cat"),
    ("Mi hermana", "My sister"),
    ("El viejo médico", "The old doctor"),
]
VERBS = [("mira", "looks at"), ("no quiere", "does not want"), ("dejó", "left"), ("vende", "sells")]
OBJECTS = [
    ("la casa.", "the house."),
    ("un libro.", "a book."),
    ("las llaves ayer.", "the keys yesterday."),
]


@pytest.fixture(autouse=True)
def small_sizes(monkeypatch):
    monkeypatch.setattr(bounded, "SMALL", 0)
    monkeypatch.setattr(vector_files, "BLOCK", 64 * WIDTH * 4)
    monkeypatch.setattr(bounded, "FEW", 4)
    monkeypatch.setattr(bounded, "WORTH", 0.5)


def clusters() -> tuple[Tensor, Tensor, Dot]:
    """Keys around 20 centres, queries that are near to them."""
    generator = torch.Generator().manual_seed(0)
    centres = 3 * torch.randn(20, WIDTH, generator=generator)
    near = [centre + torch.randn(225, WIDTH, generator=generator) for centre in centres]
    queries, keys = zip(*(rows.split([200, 25]) for rows in near), strict=True)
    return torch.cat(queries), torch.cat(keys), Dot()


def random() -> tuple[Tensor, Tensor, ScaledDot]:
    generator = torch.Generator().manual_seed(1)
    keys = torch.randn(ENTRIES, WIDTH, generator=generator)
    return torch.randn(3000, WIDTH, generator=generator), keys, ScaledDot(3.0)


def wide_range() -> tuple[Tensor, Tensor, Dot]:
    """Numbers of all sizes: scores from tiny to 10,000, keys of zeros, keys twice."""
    generator = torch.Generator().manual_seed(2)
    keys = torch.randn(ENTRIES, WIDTH, generator=generator)
    keys = keys * torch.logspace(-12, 1.5, ENTRIES).unsqueeze(-1)
    keys[::50], keys[1::50] = 0, keys[-1]
    queries = torch.randn(3000, WIDTH, generator=generator) * torch.logspace(-3, 1.5, 3000)[:, None]
    return queries, keys, Dot()


def decoder_states() -> tuple[Tensor, Tensor, ScaledDot]:
    """The last states of a translator's decoder before each word of 36 sentences."""
    spanish = Translator.open("es-en")
    states: list[Tensor] = []
    hook = spanish.model.output.register_forward_pre_hook(
        lambda module, inputs: states.append(inputs[0].detach().flatten(0, -2))
    )
    with torch.no_grad(), hook:
        for sentence in itertools.product(SUBJECTS, VERBS, OBJECTS):
            spanish.score([Pair(*map(" ".join, zip(*sentence, strict=True)))])
    keys = torch.cat(states)
    noise = torch.randn(keys.shape, generator=torch.Generator().manual_seed(3))
    queries = torch.cat([keys + scale * keys.std() * noise for scale in (0.0, 0.1, 0.3)])
    return queries, keys[::2], ScaledDot(1.0)


@pytest.mark.parametrize(
    ("data", "tolerance"),
    [(clusters, 0.01), (random, 0.3), (wide_range, 0.1), (decoder_states, 0.01)],
)
def test_no_more_is_left_out_than_the_bounds_say(data, tolerance):
    """In all, 10,900 queries."""
    queries, keys, score = data()
    memory = Memory(score=score)
    memory.write(keys, torch.eye(len(keys)))  # a reading is the weights of what was read
    answer = memory.read(queries, tolerance=tolerance)
    weights = score(queries.double(), keys.double()).softmax(-1)
    left_out = weights.masked_fill(answer.reading != 0, 0.0).sum(-1)
    distance = (answer.reading - weights).norm(dim=-1)
    bounded_rows = answer.bound > 0
    assert bounded_rows.any()
    assert (left_out <= answer.bound)[bounded_rows].all()
    assert (distance <= answer.error)[bounded_rows].all()
    assert (answer.bound <= tolerance * (1 + 1e-6)).all()
    assert (distance < 1e-6)[~bounded_rows].all()


@pytest.mark.parametrize(
    ("score", "normaliser"),
    [
        (None, None),
        (Cosine(20.0), None),
        (SoftCap(ScaledDot(2.0), 8.0), None),
        (SoftCap(Cosine(20.0), 15.0), Softmax(0.8)),
        (Dot(), Softmax(3.0)),
        ("general", None),
    ],
    ids=["default", "cosine", "capped", "capped cosine", "temperature", "general"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_scores_and_precisions(tmp_path, score, normaliser, dtype):
    queries, keys, _ = clusters()
    torch.manual_seed(0)
    if score == "general":
        score = General(WIDTH, WIDTH)
    memory = Memory(score=score, normaliser=normaliser)
    values = torch.randn(len(keys), 3)
    memory.write(keys.to(dtype), values.to(dtype))
    queries = queries[::100].to(dtype)
    with Memory.open(tmp_path / "m", write=True, score=score, normaliser=normaliser) as stored:
        stored.update(memory)
        wide = Memory(score=score, normaliser=normaliser)
        wide.write(memory.keys.double(), memory.values.double())
        exact = wide.read(queries.double())
        for answer in (memory.read(queries, tolerance=0.02), stored.read(queries, tolerance=0.02)):
            bounded_rows = answer.bound > 0
            distance = (answer.reading.double() - exact).norm(dim=-1)
            assert bounded_rows.any()
            assert (distance <= answer.error)[bounded_rows].all()
            assert (answer.bound <= 0.02 * (1 + 1e-6)).all()
            assert answer.error.dtype == torch.float32


def test_it_reads_less():
    queries, keys, score = clusters()
    memory = Memory(score=score)
    memory.write(keys.repeat(8, 1), torch.ones(8 * len(keys), 200))
    answer = memory.read(queries[:1], tolerance=0.01)
    assert answer.share < 0.2
    assert memory.read(queries[:1], tolerance=0.0).share == 1
    assert memory.read(queries[:1], tolerance=0.0).bound == 0


@pytest.mark.parametrize(
    ("score", "normaliser"),
    [
        (Additive(WIDTH, WIDTH, 4), None),
        (lambda query, key: query @ key.mT, None),
        (None, "hard"),
        (None, "entmax"),
    ],
)
def test_all_is_read_where_no_bound_is_known(tmp_path, score, normaliser):
    queries, keys, _ = clusters()
    memory = Memory(score=score, normaliser=normaliser)
    memory.write(keys, keys[:, :3])
    with Memory.open(tmp_path / "m", write=True, score=score, normaliser=normaliser) as stored:
        stored.update(memory)
        for a_memory in (memory, stored):
            answer = a_memory.read(queries[:2], tolerance=0.01)
            assert answer.share == 1
            assert not answer.bound.any()
            torch.testing.assert_close(answer.reading, memory.read(queries[:2]))


def test_all_is_read_where_most_entries_matter():
    memory = Memory()
    memory.write(torch.randn(ENTRIES, WIDTH))
    query = torch.randn(3, WIDTH)
    answer = memory.read(query, tolerance=0.001)
    assert answer.share == 1
    torch.testing.assert_close(answer.reading, memory.read(query))


@pytest.mark.parametrize("place", ["in RAM", "in a folder"])
def test_masks_batches_and_deletions(tmp_path, place):
    queries, keys, score = clusters()
    memory = Memory(score=score)
    if place == "in a folder":
        memory = Memory.open(tmp_path / "m", write=True, score=score)
    memory.write(keys, keys[:, :3])
    queries = queries[::200].view(4, 5, WIDTH)
    mask = torch.rand(5, len(keys), generator=torch.Generator().manual_seed(0)) > 0.5
    mask[2] = False
    if place == "in a folder":
        memory.delete(range(0, 500, 3))
    answer = memory.read(queries, mask=mask, tolerance=0.05)
    exact = memory.read(queries, mask=mask)
    assert answer.reading.shape == (4, 5, 3)
    assert answer.bound.shape == answer.error.shape == (4, 5)
    assert not answer.reading[:, 2].any()
    assert not answer.bound[:, 2].any()
    assert ((answer.reading - exact).norm(dim=-1) <= answer.error + 1e-6).all()
    masks = torch.stack([mask, ~mask])
    answer, exact = (
        memory.read(queries[0], mask=masks, **more) for more in ({"tolerance": 0.05}, {})
    )
    assert ((answer.reading - exact).norm(dim=-1) <= answer.error + 1e-6).all()
    with pytest.raises(ShapeError, match="mask covers 3 queries, there are 5"):
        memory.read(queries, mask=mask[:3], tolerance=0.05)
    with pytest.raises(TypeError, match="booleans"):
        memory.read(queries, mask=mask.float(), tolerance=0.05)
    rule = regard.masks.band(600, 600)
    if place == "in RAM":
        assert memory.read(queries, mask=rule, tolerance=0.05).share < 1


def test_codes_follow_what_is_written():
    queries, keys, score = clusters()
    memory, later = Memory(score=score), Memory(score=score)
    for a_memory, portions in ((memory, keys.split(100)), (later, [keys])):
        for portion in portions:
            a_memory.write(portion, portion[:, :3])
            answer = a_memory.read(queries[:5], tolerance=0.05)
    torch.testing.assert_close(memory.read(queries[:5], tolerance=0.05).error, answer.error)
    memory.write(keys[:0], keys[:0, :3])
    again = memory.read(queries[:5], tolerance=0.05)
    torch.testing.assert_close(again.reading, answer.reading)
    memory.values.neg_()  # in place: the codes are made again
    negative = memory.read(queries[:5], tolerance=0.05)
    torch.testing.assert_close(negative.reading, -answer.reading)


def test_a_folder_keeps_its_codes(tmp_path):
    queries, keys, score = clusters()
    with Memory.open(tmp_path / "m", write=True, score=score) as memory:
        memory.write(keys[:300], payloads=list(range(300)))
    with Memory.open(tmp_path / "m", score=score) as reader:
        assert reader.read(queries[:5], tolerance=0.05).share == 1  # it cannot write any
    with Memory.open(tmp_path / "m", write=True, score=score) as memory:
        assert memory.read(queries[:5], tolerance=0.05).share < 1
        memory.write(keys[300:])
        memory.delete([0, 7])
        memory.compact()
        memory.verify()
    with Memory.open(tmp_path / "m", score=score) as reader:
        answer = reader.read(queries[:5], tolerance=0.05)
        assert answer.share < 1
        assert ((answer.reading - reader.read(queries[:5])).norm(dim=-1) <= answer.error).all()
        assert reader.find(queries[0], 1).payloads is not None
    content = bytearray((tmp_path / "m" / "2" / "codes").read_bytes())
    content[1000] ^= 1
    (tmp_path / "m" / "2" / "codes").write_bytes(content)
    with (
        Memory.open(tmp_path / "m", score=score) as reader,
        pytest.raises(MemoryFileError, match="codes: damaged in block 0"),
    ):
        reader.read(queries[:5], tolerance=0.05)


def flipped(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :]


DAMAGES = {
    "flip": (flipped, "damaged in block"),
    "cut": (lambda content, at: content[:at], "it was cut"),
    "hole": (lambda content, at: content[:at] + bytes(64) + content[at + 64 :], "damaged in block"),
    "shift": (lambda content, at: content[at:] + content[:at], "damaged in block"),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["codes", "lengths"])
def test_damaged_codes_are_named(tmp_path, name, damage):
    queries, keys, score = clusters()
    with Memory.open(tmp_path / "m", write=True, score=score) as memory:
        memory.write(keys)
        assert memory.read(queries[:1], tolerance=0.05).share < 1
    path, (spoil, message) = tmp_path / "m" / "1" / name, DAMAGES[damage]
    content = path.read_bytes()
    for at in range(4, len(content) - 64, len(content) // 10):
        path.write_bytes(spoil(content, at))
        assert path.read_bytes() != content
        with (
            pytest.raises(MemoryFileError, match=rf"{name}: .*{message}"),
            Memory.open(tmp_path / "m", score=score) as memory,
        ):
            memory.read(queries[:1], tolerance=0.05)
        if damage != "cut":
            with Memory.open(tmp_path / "m", score=score) as memory:
                memory.read(queries[:1])  # keys and values are sound
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(MemoryFileError, match=f"{name}: cannot be opened"):
        Memory.open(tmp_path / "m", score=score)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork, to kill a writer")
def test_a_kill_while_codes_are_made_loses_nothing(tmp_path):
    queries, keys, score = clusters()
    with Memory.open(tmp_path / "m", write=True, score=score) as memory:
        memory.write(keys)
    for calls in (0, 1, 6, 13):  # appends before the kill: two for each block of 64 entries
        child = os.fork()
        if not child:
            try:
                code_until_killed(tmp_path / "m", queries[:1], calls)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        with Memory.open(tmp_path / "m", score=score) as reader:
            reader.verify()
            assert reader.read(queries[:5], tolerance=0.05).share == 1
    with Memory.open(tmp_path / "m", write=True, score=score) as memory:
        answer = memory.read(queries[:5], tolerance=0.05)
        memory.verify()
        assert answer.share < 1
        assert ((answer.reading - memory.read(queries[:5])).norm(dim=-1) <= answer.error).all()


@pytest.mark.parametrize("name", ["codes", "lengths"])
def test_a_full_disk_while_codes_are_made_loses_nothing(tmp_path, monkeypatch, name):
    queries, keys, score = clusters()
    append = vector_files.VectorFile.append

    def full(file: vector_files.VectorFile, vectors: Tensor) -> dict[int, bytes]:
        if file.path.name == name and file.rows:
            raise OSError(28, "No space left on device", str(file.path))
        return append(file, vectors)

    with Memory.open(tmp_path / "m", write=True, score=score) as memory:
        memory.write(keys)
        exact = memory.read(queries[:5])
        with monkeypatch.context() as patch:
            patch.setattr(vector_files.VectorFile, "append", full)
            with pytest.raises(OSError, match=f"No space left on device.*{name}"):
                memory.read(queries[:5], tolerance=0.05)
        memory.verify()
        assert torch.equal(memory.read(queries[:5]), exact)
        assert memory.read(queries[:5], tolerance=0.05).share < 1
        memory.verify()


def test_a_folder_that_is_replaced_meanwhile_is_read_as_it_was(tmp_path):
    queries, keys, score = clusters()
    for folder, rows in (("m", keys), ("other", -keys)):
        with Memory.open(tmp_path / folder, write=True, score=score) as memory:
            memory.write(rows)
            memory.read(queries[:1], tolerance=0.05)
    with Memory.open(tmp_path / "m", score=score) as memory:
        expected = memory.read(queries[:5], tolerance=0.05)
        (tmp_path / "m").rename(tmp_path / "old")
        (tmp_path / "other").rename(tmp_path / "m")
        answer = memory.read(queries[:5], tolerance=0.05)
    assert torch.equal(answer.reading, expected.reading)
    assert torch.equal(answer.bound, expected.bound)


def code_until_killed(folder: Path, queries: Tensor, calls: int) -> None:
    torch.set_num_threads(1)
    append, counter = vector_files.VectorFile.append, itertools.count()

    def killing(file: vector_files.VectorFile, vectors: Tensor) -> dict[int, bytes]:
        if next(counter) == calls:
            os.kill(os.getpid(), signal.SIGKILL)
        return append(file, vectors)

    with Memory.open(folder, write=True) as memory:
        vector_files.VectorFile.append = killing  # type: ignore[method-assign]  # in this process alone
        memory.read(queries, tolerance=0.05)


def test_values_that_come_later_have_their_lengths(tmp_path):
    queries, keys, score = clusters()
    with Memory.open(tmp_path / "m", write=True, score=score) as memory:
        memory.write(keys[:400])
        memory.read(queries[:2], tolerance=0.05)
        memory.write(keys[400:], 1000 * keys[400:])
        answer = memory.read(queries[::200], tolerance=0.05)
        distance = (answer.reading - memory.read(queries[::200])).norm(dim=-1)
        assert (distance <= answer.error * (1 + 1e-5) + 1e-3).all()


@pytest.mark.parametrize("tolerance", [-0.1, 1.0, float("nan")])
def test_tolerances_that_are_none(tolerance):
    with pytest.raises(ValueError, match="pass a weight from 0 to below 1"):
        Memory().read(torch.ones(1, 2), tolerance=tolerance)


def test_a_small_memory_is_read_as_a_whole(monkeypatch):
    monkeypatch.undo()
    queries, keys, score = clusters()
    memory = Memory(score=score)
    memory.write(keys)
    answer = memory.read(queries[:3], tolerance=0.01)
    assert answer.share == 1
    torch.testing.assert_close(answer.reading, memory.read(queries[:3]))


def test_an_empty_memory_reads_zeros():
    answer = Memory(4, 3).read(torch.ones(2, 4), tolerance=0.1)
    assert isinstance(answer, BoundedReading)
    assert answer.reading.shape == (2, 3)


def test_parameters_that_are_trained_and_gradients():
    queries, keys, _ = clusters()
    memory = Memory(score=General(WIDTH, WIDTH), trainable=True)
    memory.write(keys)
    answer = memory.read(queries[:2].requires_grad_(), tolerance=0.1)
    assert not answer.reading.requires_grad
    with torch.no_grad():
        memory.keys.mul_(2)
    exact = memory.read(queries[:2]).detach()
    answer = memory.read(queries[:2], tolerance=0.1)
    assert ((answer.reading - exact).norm(dim=-1) <= answer.error + 1e-5).all()


def test_numbers_that_overflow_are_read_exactly():
    memory = Memory(score=Dot())
    memory.write(torch.full((ENTRIES, WIDTH), 1e38), torch.ones(ENTRIES, 2))
    answer = memory.read(torch.full((1, WIDTH), 1e-37), tolerance=0.1)
    torch.testing.assert_close(answer.reading, torch.ones(1, 2))
    assert memory.read(torch.full((1, WIDTH), 1e10), tolerance=0.1).share == 1
    keys = 1e5 * torch.randn(ENTRIES, WIDTH, generator=torch.Generator().manual_seed(0))
    memory = Memory(score=Dot())
    memory.write(keys, torch.eye(ENTRIES))
    answer = memory.read(keys[:1], tolerance=0.1)
    assert answer.reading.argmax() == 0
    assert answer.bound <= 0.1


@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_values_that_are_not_finite_are_not_left_out(number):
    queries, keys, score = clusters()
    values = torch.ones(len(keys), 2)
    values[5, 1] = number
    memory = Memory(score=score)
    memory.write(keys, values)
    answer = memory.read(queries[-2:], tolerance=0.1)
    assert answer.share == 1
    torch.testing.assert_close(answer.reading, memory.read(queries[-2:]), equal_nan=True)


def test_codes_and_the_lengths_of_their_errors():
    generator = torch.Generator().manual_seed(0)
    keys = torch.randn(ENTRIES, 7, generator=generator) * torch.logspace(-42, 30, ENTRIES)[:, None]
    keys[3] = 0
    rows, difference, length = codes.encode(keys)
    decoded = codes.decode(rows, 7).double()
    assert ((keys - decoded).norm(dim=-1) <= difference).all()
    assert (keys.double().norm(dim=-1) <= length).all()
    assert (keys.double().norm(dim=-1) <= codes.lengths(keys)).all()
    large = length > 1e-30
    assert (difference < 0.01 * length)[large].all()
