"""Memories whose entries are shared out among ranks."""

import math
from typing import Any

import pytest
import torch
from torch.testing import assert_close

import regard
from regard import masks
from regard.attention.ranks import Keys, RankError
from regard.memory import over_ranks
from regard.scores import General

ENTRIES, SIZES = 11, [4, 0, 7]


@pytest.fixture(params=["in RAM", "in a folder"])
def memories(request, tmp_path):
    """The keys, the values, and a function of the rank that opens a memory of its entries."""
    torch.manual_seed(0)
    keys, values, score = torch.randn(ENTRIES, 6), torch.randn(ENTRIES, 3), General(6, 6)

    def open_memory(rank):
        here = [side.split(SIZES)[rank] for side in (keys, values)]
        if request.param == "in RAM":
            memory = regard.Memory(6, 3, score=score)
            memory.write(*here)
            return memory
        folder = tmp_path / str(rank)
        with regard.Memory.open(folder, write=True) as memory:
            memory.write(keys[:1], values[:1])
            memory.delete(0)
            memory.write(*here)
            memory.compact()
        return regard.Memory.open(folder, score=score)

    return keys, values, score, open_memory


@pytest.mark.parametrize(
    "mask", [None, masks.band(2, 3).dense((), 2, ENTRIES)], ids=["all", "mask"]
)
def test_a_reading_is_that_of_one_memory(on_ranks, memories, mask):
    keys, values, score, open_memory = memories
    query, weights = torch.randn(2, 6, requires_grad=True), torch.randn(2, 3)

    def gradients(reading, query, score):
        return torch.autograd.grad((reading * weights).sum(), [query, score.weight])

    expected = regard.attend(query, keys, values, score=score, mask=mask)
    of_one = gradients(expected, query, score)

    def on_rank(group, rank):
        memory, leaf = open_memory(rank), query.detach().requires_grad_()
        reading = memory.read(leaf, mask=mask, group=group)
        return reading.detach(), gradients(reading, leaf, memory.score)

    answers = on_ranks(3, on_rank)
    assert not [answer for answer in answers if isinstance(answer, Exception)]
    for reading, ours in answers:
        assert_close(reading, expected, atol=1e-6, rtol=1e-5)
        for gradient, reference in zip(ours, of_one, strict=True):
            assert_close(gradient, reference, atol=2e-6, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_queries_are_read_in_the_precision_of_the_keys(on_ranks, dtype):
    key, query = torch.randn(ENTRIES, 6).to(dtype), torch.randn(2, 6)

    def read(rows, group=None):
        memory = regard.Memory(6)
        memory.write(rows)
        return memory.read(query, group=group)

    expected = read(key)
    for reading in on_ranks(3, lambda group, rank: read(key.split(SIZES)[rank], group)):
        assert_close(reading, expected, atol=1e-3, rtol=1e-3)


def test_a_mask_has_batch_axes(on_ranks, memories):
    keys, values, score, open_memory = memories
    query, mask = torch.randn(3, 6), torch.rand(2, 3, ENTRIES) < 0.6
    expected = regard.attend(query, keys, values, score=score, mask=mask).detach()

    def on_rank(group, rank):
        memory = open_memory(rank)
        bounded = memory.read(query, mask=mask, group=group, tolerance=0.01)
        return memory.read(query, mask=mask, group=group).detach(), bounded.reading

    for readings in on_ranks(3, on_rank):
        for reading in readings:
            assert_close(reading, expected, atol=1e-6, rtol=1e-5)


def test_a_damaged_folder_is_named_on_its_rank_and_ends_the_others(on_ranks, tmp_path):
    def on_rank(group, rank):
        folder = tmp_path / str(rank)
        with regard.Memory.open(folder, write=True) as memory:
            memory.write(torch.ones(5, 6))
        if rank == 1:
            (path,) = folder.rglob("keys*")
            path.write_bytes(path.read_bytes()[:-30] + b"x" * 30)
        return regard.Memory.open(folder).read(torch.ones(1, 6), group=group)

    first, second = on_ranks(2, on_rank, seconds=20)
    assert isinstance(first, RankError)
    assert first.rank == 1
    assert "keys" in str(second)


def test_folders_without_entries_read_zeros(on_ranks, tmp_path):
    def on_rank(group, rank):
        regard.Memory.open(tmp_path / str(rank), write=True).close()
        return regard.Memory.open(tmp_path / str(rank)).read(torch.ones(2, 6), group=group)

    for reading in on_ranks(2, on_rank):
        assert torch.equal(reading, torch.zeros(2, 6))


@pytest.mark.parametrize("place", ["in RAM", "in a folder"])
@pytest.mark.parametrize("sizes", [[900, 300], [0, 1200]], ids=str)
def test_bounds_of_ranks_are_a_bound_of_all(on_ranks, monkeypatch, tmp_path, place, sizes):
    """Readings that leave entries out, others that read all on one rank, and deletions, under a mask."""
    monkeypatch.setattr("regard.memory.bounded.SMALL", 0)
    generator = torch.Generator().manual_seed(0)
    centres = 3 * torch.randn(10, 24, generator=generator)
    near = centres.repeat(130, 1) + 0.3 * torch.randn(1300, 24, generator=generator)
    keys, query = near[:1200], torch.cat([near[1200:], torch.zeros(2, 24)])
    values = torch.eye(1200)  # a reading is the weights of what was read
    mask = torch.rand(len(query), 1200, generator=generator) < 0.9
    mask[3] = False
    mask[5, : sizes[0]] = False
    scores = (query.double() @ keys.double().T).masked_fill(~mask, -torch.inf)
    weights = scores.softmax(-1).nan_to_num(0.0)

    def on_rank(group, rank):
        if place == "in RAM":
            memory = regard.Memory(24, 1200, score="dot")
        else:
            memory = regard.Memory.open(tmp_path / str(rank), write=True, score="dot")
        memory.write(keys.split(sizes)[rank], values.split(sizes)[rank])
        return memory.read(query, mask=mask, group=group, tolerance=0.02)

    answers = on_ranks(2, on_rank)
    assert not [answer for answer in answers if isinstance(answer, Exception)]
    for answer in answers:
        assert (answer.bound <= 0.02 * (1 + 1e-6)).all()
        left_out = weights.masked_fill(answer.reading != 0, 0.0).sum(-1)
        assert (left_out <= answer.bound + 1e-30).all()
        distance = (answer.reading.double() - weights).norm(dim=-1)
        assert (distance <= answer.error + 1e-5).all()
        assert (answer.bound > 0).any()
        assert not answer.reading[3].any()
    for ours, theirs in zip(*(vars(answer).values() for answer in answers), strict=True):
        assert_close(ours, theirs, atol=0, rtol=0)


def test_the_error_holds_where_a_rank_left_out_less_than_its_bound(monkeypatch):
    """The first rank bounds by 1/2 what it left out, which was nothing; the second left out a value of 1."""
    mass = 1e-3
    messages = torch.tensor(  # log-normaliser, bound, error, reading, entries read
        [[0.0, 0.5, 0.0, 0.0, 1.0], [math.log(mass), 0.5, 0.5, 0.0, 1.0]], dtype=torch.float64
    )
    monkeypatch.setattr(over_ranks, "section", lambda *_: (Keys(0, 1, 2, 1), None, 1))
    monkeypatch.setattr(over_ranks, "gather", lambda *_: messages.numpy())
    query: Any = torch.zeros(1, 1)
    unused: Any = None
    answer = over_ranks.read_within(unused, query, None, None, None, unused)
    assert answer.error.item() >= mass / (1 + 2 * mass)
    assert answer.bound.item() >= 0.5


def test_tolerance_over_ranks_needs_a_softmax(on_ranks):
    def on_rank(group, rank):
        memory = regard.Memory(6, 3, normaliser="hard")
        return memory.read(torch.ones(1, 6), group=group, tolerance=0.1)

    for answer in on_ranks(2, on_rank):
        assert isinstance(answer, ValueError)
        assert "pass Softmax()" in str(answer)


def test_a_bound_that_rounds_to_one_gives_no_nan(monkeypatch):
    """A tolerance within 3e-8 of 1: the first rank may have left out any weight, the second nothing."""
    messages = torch.tensor(
        [[0.0, 1.0, 2.0, 3.0, 1.0], [1.0, 0.0, 0.0, 5.0, 1.0]], dtype=torch.float64
    )
    monkeypatch.setattr(over_ranks, "section", lambda *_: (Keys(0, 1, 2, 1), None, 1))
    monkeypatch.setattr(over_ranks, "gather", lambda *_: messages.numpy())
    query: Any = torch.zeros(1, 1)
    unused: Any = None
    answer = over_ranks.read_within(unused, query, None, None, None, unused)
    assert answer.bound.item() == 1
    assert 2 <= answer.error.item() < 10
    assert 3 < answer.reading.item() < 5
