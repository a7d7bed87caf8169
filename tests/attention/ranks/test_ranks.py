"""Attention over ranks equals attention over all keys in one process."""

import os
import signal
import time
from itertools import pairwise

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

import regard
from regard import masks
from regard.attention import ranks
from regard.attention.ranks import RankError
from regard.normalisers import Softmax
from regard.positions import Alibi
from regard.scores import Additive, General

KEYS = 23
SPLITS = {1: [KEYS], 2: [9, 14], 4: [5, 0, 17, 1]}
MASKS = {
    "none": None,
    "tensor": torch.rand(2, 1, 7, KEYS, generator=torch.Generator().manual_seed(3)) > 0.4,
    "window": masks.band(3, 2),
    "causal at the end": masks.causal(align="end"),
    "padding": masks.padding(torch.tensor([[11], [KEYS]])),
    "union": masks.band(2, 0) | masks.padding(torch.tensor([[4], [6]])),
    "function": lambda query, key: (query + key) % 3 > 0,
    "nothing": torch.zeros(7, KEYS, dtype=torch.bool),
}


def vectors(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


BIAS = vectors(1, 7, 7, seed=5).requires_grad_()


def split(tensor, sizes, rank, axis=-2):
    return tensor.split(sizes, axis)[rank]


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("mask", MASKS, ids=str)
def test_a_reading_is_that_of_one_process(on_ranks, mask, ranks):
    query, key, value = (
        vectors(2, 3, 7, 8),
        vectors(2, 3, KEYS, 8, seed=1),
        vectors(2, 3, KEYS, 5, seed=2),
    )
    rule, sizes = MASKS[mask], SPLITS[ranks]

    def read(group, rank):
        here = split(key, sizes, rank), split(value, sizes, rank)
        return regard.attend(query, *here, mask=rule, group=group)

    expected = regard.attend(query, key, value, mask=rule)
    answers = on_ranks(ranks, read)
    for answer in answers:
        assert_close(answer, expected, atol=1e-6, rtol=1e-5)
        assert torch.equal(answer, answers[0])


@pytest.mark.parametrize(
    ("queries", "mask", "is_trained", "messages"),
    [
        (3, False, None, 1),
        (1, False, None, 1),
        (0, False, None, 1),
        (300, False, None, 2),
        (3, True, None, 3),
        (3, False, 1, 2),
    ],
    ids=["short", "one", "empty", "long", "mask", "gradient"],
)
def test_a_short_reading_is_one_message(on_ranks, monkeypatch, queries, mask, is_trained, messages):
    query, key, value = vectors(queries, 8), vectors(KEYS, 8, seed=1), vectors(KEYS, 5, seed=2)
    rule = torch.ones(queries, KEYS, dtype=torch.bool) if mask else None
    counts, exchange = [0, 0], ranks.exchange._exchange

    def counted(group, *messages):
        counts[group.rank()] += 1
        return exchange(group, *messages)

    def read(group, rank):
        here, values = split(key, [9, 14], rank), split(value, [9, 14], rank)
        here = here.clone().requires_grad_(rank == is_trained)
        options = {"mask": rule, "score": "dot", "normaliser": Softmax(0.7), "group": group}
        return regard.attend(query, here, values, **options).detach()

    monkeypatch.setattr(ranks.exchange, "_exchange", counted)
    expected = regard.attend(query, key, value, score="dot", normaliser=Softmax(0.7))
    for answer in on_ranks(2, read):
        assert_close(answer, expected, atol=1e-6, rtol=1e-5)
    assert counts == [messages, messages]


def test_many_keys_are_read_once_and_take_one_message(on_ranks, monkeypatch):
    query, key, value = vectors(3, 8), vectors(KEYS, 8, seed=1), vectors(KEYS, 8, seed=2)
    monkeypatch.setattr(ranks.reading, "FEW", 0)
    monkeypatch.setattr(ranks.reading, "Look", None)  # would read the keys again
    exchange, sizes = ranks.exchange._exchange, []

    def counted(group, *messages):
        sizes.append(group.rank())
        return exchange(group, *messages)

    def read(group, rank):
        here = split(key, [9, 14], rank), split(value, [9, 14], rank)
        return regard.attend(query, *here, score="cosine", normaliser=Softmax(0.7), group=group)

    monkeypatch.setattr(ranks.exchange, "_exchange", counted)
    expected = regard.attend(query, key, value, score="cosine", normaliser=Softmax(0.7))
    for answer in on_ranks(2, read):
        assert_close(answer, expected, atol=1e-6, rtol=1e-5)
    assert sorted(sizes) == [0, 1]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_a_reading_has_the_precision_of_its_values(on_ranks, dtype):
    query, key = vectors(3, 8).to(dtype), vectors(KEYS, 8, seed=1).to(dtype)

    def read(group, rank):
        here = split(key, [9, 14], rank)
        return regard.attend(query, here, here, group=group)

    expected = regard.attend(query.double(), key.double(), key.double())
    for answer in on_ranks(2, read):
        assert answer.dtype == dtype
        error = (answer.double() - expected).abs().max().item()
        assert error <= 3 * torch.finfo(dtype).eps


@pytest.mark.parametrize("side", range(3), ids=["query", "key", "value"])
def test_vectors_may_lie_in_memory_in_any_order(on_ranks, side):
    sides = [vectors(3, 8), vectors(KEYS, 8, seed=1), vectors(KEYS, 8, seed=2)]
    expected = regard.attend(*sides)
    sides[side] = sides[side].mT.contiguous().mT

    def read(group, rank):
        query, *here = sides
        return regard.attend(query, *(split(side, [9, 14], rank) for side in here), group=group)

    for answer in on_ranks(2, read):
        assert_close(answer, expected, atol=1e-6, rtol=1e-5)


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("width", [8, 5])
def test_infinite_keys_and_values_read_as_in_one_process(on_ranks, width):
    query, key, value = vectors(3, 8), vectors(KEYS, 8, seed=1), vectors(KEYS, width, seed=2)
    key[1, 0], value[11, 1] = torch.inf, -torch.inf

    def read(group, rank):
        here = split(key, [9, 14], rank), split(value, [9, 14], rank)
        return regard.attend(query, *here, group=group)

    expected = regard.attend(query, key, value)
    for answer in on_ranks(2, read):
        assert_close(answer, expected, atol=1e-6, rtol=1e-5, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_gradients_in_half_precision_are_sums_over_the_ranks(on_ranks, dtype):
    key, value, upstream = vectors(KEYS, 8, seed=1), vectors(KEYS, 5, seed=2), vectors(3, 5, seed=3)

    def gradient(query, key, value, group=None):
        reading = regard.attend(query, key, value, group=group)
        return torch.autograd.grad((reading * upstream.to(reading)).sum(), query)[0]

    def on_rank(group, rank):
        here = (split(side, [9, 14], rank).to(dtype) for side in (key, value))
        return gradient(vectors(3, 8).to(dtype).requires_grad_(), *here, group=group)

    sides = (side.to(dtype).double() for side in (vectors(3, 8).requires_grad_(), key, value))
    expected = gradient(*sides)
    for answer in on_ranks(2, on_rank):
        assert answer.dtype == dtype
        assert_close(answer.double(), expected, atol=0.03, rtol=0.03)


@pytest.mark.parametrize(
    "options",
    [
        {"score": General(8, 8, heads=3), "mask": "causal"},
        {"score": Additive(8, 8, 6), "mask": masks.band(4, 4), "bias": Alibi(3)},
        {"score": "cosine", "bias": BIAS, "normaliser": Softmax(0.5)},
    ],
    ids=["general", "additive", "cosine"],
)  # fmt: skip
def test_gradients_are_those_of_one_process(on_ranks, options):
    parameters = [option for option in options.values() if isinstance(option, torch.Tensor)]
    if isinstance(options.get("score"), torch.nn.Module):
        parameters += options["score"].parameters()
    sizes, weights = [4, 0, 3], vectors(2, 3, 7, 5, seed=9)

    def leaves():
        draws = vectors(2, 3, 7, 8), vectors(2, 3, 7, 8, seed=1), vectors(2, 3, 7, 5, seed=2)
        return [draw.requires_grad_() for draw in draws]

    def gradients(query, keys, values, here, group=None):
        reading = regard.attend(query, *here, group=group, **options)
        return torch.autograd.grad(
            (reading * weights).sum(), [query, keys, values, *parameters], allow_unused=True
        )

    query, key, value = leaves()
    expected = gradients(query, key, value, (key, value))

    def on_rank(group, rank):
        query, key, value = leaves()
        here = split(key, sizes, rank), split(value, sizes, rank)
        return gradients(query, key, value, here, group)

    answers = on_ranks(3, on_rank)
    for answer in answers:
        for i in (0, *range(3, len(expected))):  # the query and what else ranks have in common
            assert_close(answer[i], expected[i], atol=2e-6, rtol=1e-4)
    for i in (1, 2):  # of keys and values each rank has its own
        assert_close(sum(answer[i] for answer in answers), expected[i], atol=2e-6, rtol=1e-4)


def test_a_mask_with_batch_axes_has_the_gradients_of_one_process(on_ranks):
    key, value, sizes = vectors(3, 6, 4, seed=1), vectors(3, 6, 5, seed=2), [4, 0, 2]
    mask = vectors(2, 1, 5, 6, seed=3) > -0.5

    def gradients(here, group=None):
        query = vectors(5, 4).requires_grad_()
        reading = regard.attend(query, *here, mask=mask, group=group)
        entropy = regard.look(query, here[0], mask=mask, group=group).entropy()
        loss = reading.square().sum() + entropy.square().sum()
        return (reading.detach(), *torch.autograd.grad(loss, [query]))

    def on_rank(group, rank):
        return gradients((split(key, sizes, rank), split(value, sizes, rank)), group)

    expected = gradients((key, value))
    for answer in on_ranks(3, on_rank, seconds=20):
        assert_close(answer, expected, atol=1e-5, rtol=1e-4)


def test_queries_that_are_the_keys_get_both_gradients(on_ranks):
    x = vectors(6, 4).requires_grad_()
    (expected,) = torch.autograd.grad(regard.attend(x, x, x).square().sum(), [x])

    def on_rank(group, rank):
        x = vectors(6, 4).requires_grad_()
        here = x[3 * rank : 3 * rank + 3]
        reading = regard.attend(x, here, here, group=group)
        return x, torch.autograd.grad(reading.square().sum(), [x])[0]

    (_, ours), (_, theirs) = on_ranks(2, on_rank)
    common = torch.autograd.grad(regard.attend(x, x.detach(), x.detach()).square().sum(), [x])[0]
    assert_close(ours + theirs - common, expected, atol=1e-5, rtol=1e-4)


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.integers(0, 12), max_size=3), st.integers(0, 99), st.floats(1, 60))
def test_a_look_is_that_of_one_process(on_ranks, cuts, seed, spread):
    keys = 12
    bounds = [0, *sorted(cuts), keys]
    query, key = vectors(2, 5, 4, seed=seed), vectors(2, keys, 4, seed=seed + 1) * spread
    mask = vectors(5, keys, seed=seed + 2) > -1.0

    def on_rank(group, rank):
        here = key[:, bounds[rank] : bounds[rank + 1]]
        look = regard.look(query, here, mask=mask, group=group)
        answers = look.entropy(), look.perplexity(), look.log_normaliser(), *look.top(4)
        return (*answers, look.received(), look.weights(), look.weights(rows=[1], columns=slice(1)))

    expected = regard.look(query.double(), key.double(), mask=mask)
    top, places = expected.top(4)
    answers = on_ranks(len(bounds) - 1, on_rank)
    near = {"check_dtype": False, "atol": 1e-5, "rtol": 1e-4}
    for answer in answers:
        assert_close(answer[0], expected.entropy(), **near | {"atol": 1e-4})
        assert_close(answer[2], expected.log_normaliser(), **near)
        assert_close(answer[3], top, **near)
        distinct = torch.where(top > 1e-6, places, -1)
        assert torch.equal(torch.where(top > 1e-6, answer[4], -1), distinct)
    assert_close(torch.cat([answer[5] for answer in answers], -1), expected.received(), **near)
    assert_close(torch.cat([answer[6] for answer in answers], -1), expected.weights(), **near)
    for answer, (start, _) in zip(answers, pairwise(bounds), strict=True):
        assert_close(
            answer[7], expected.weights(rows=[1])[..., start : start + answer[7].shape[-1]], **near
        )


def test_an_entropy_is_trained_with(on_ranks):
    key = vectors(6, 4, seed=1)
    query = vectors(3, 4).requires_grad_()
    (expected,) = torch.autograd.grad(regard.look(query, key).entropy().sum(), [query])

    def on_rank(group, rank):
        query = vectors(3, 4).requires_grad_()
        look = regard.look(query, key[2 * rank : 2 * rank + 2], group=group)
        return torch.autograd.grad(look.entropy().sum(), [query])[0]

    for answer in on_ranks(3, on_rank):
        assert_close(answer, expected, atol=1e-5, rtol=1e-4)


def refusals():
    def other_queries(group, rank):
        return regard.attend(vectors(3 + rank, 4), vectors(2, 4), vectors(2, 4), group=group)

    def other_values(group, rank):
        return regard.attend(vectors(3, 4), vectors(2, 4), vectors(2, 4 + rank), group=group)

    def bad_keys(group, rank):
        return regard.attend(vectors(3, 4), vectors(2, 4 + rank), vectors(2, 4), group=group)

    def hard(group, rank):
        return regard.look(vectors(3, 4), vectors(2, 4), normaliser="hard", group=group)

    def local_mask(group, rank):
        mask = torch.ones(3, 2, dtype=torch.bool)
        return regard.attend(vectors(3, 4), vectors(2, 4), vectors(2, 4), mask=mask, group=group)

    def mask_of_one(group, rank):
        mask = torch.ones(3, 4 - 2 * rank, dtype=torch.bool)
        return regard.attend(vectors(3, 4), vectors(2, 4), vectors(2, 4), mask=mask, group=group)

    def bias_of_one(group, rank):
        bias = torch.ones(3, 4 - 2 * rank) if rank else None
        return regard.look(vectors(3, 4), vectors(2, 4), bias=bias, group=group)

    def other_batch(group, rank):
        mask = torch.ones(1 + rank, 3, 4, dtype=torch.bool)
        return regard.attend(vectors(3, 4), vectors(2, 4), vectors(2, 4), mask=mask, group=group)

    def hidden(group, rank):
        scale = torch.ones((), requires_grad=True)
        return regard.attend(
            vectors(3, 4),
            vectors(2, 4),
            vectors(2, 4),
            score=lambda q, k: q @ k.mT * scale,
            group=group,
        )

    return [
        (
            other_queries,
            RankError,
            "rank 1 has queries of shape [4] and values 4 wide, this one has",
        ),
        (other_values, RankError, "values 5 wide"),
        (bad_keys, RankError, "rank 1 failed: its own error says why"),
        (hard, ValueError, "pass Softmax()"),
        (local_mask, ValueError, "mask covers 2 keys, the memory holds 4"),
        (mask_of_one, RankError, "rank 1 failed: its own error says why"),
        (bias_of_one, RankError, "rank 1 failed: its own error says why"),
        (other_batch, RankError, "rank 1 has other batch axes"),
        (hidden, ValueError, "reads a tensor with a gradient that it does not name"),
    ]


@pytest.mark.parametrize(
    ("call", "kind", "words"), refusals(), ids=lambda each: getattr(each, "__name__", "")
)
def test_a_fault_is_named_on_all_ranks(on_ranks, call, kind, words):
    first, second = on_ranks(2, call, seconds=20)
    assert isinstance(first, kind)
    assert words in str(first)
    assert isinstance(second, Exception)


def test_a_rank_that_stalls_is_named_within_the_time_out(on_forks):
    def on_rank(group, rank):
        if rank == 2:
            time.sleep(3)
        else:
            regard.attend(vectors(3, 4), vectors(2, 4), vectors(2, 4), group=group)

    first, second, _ = on_forks(3, on_rank, seconds=1)
    for error in (first, second):
        assert isinstance(error, RankError)
        assert error.rank == 2
        assert str(error).startswith("rank 2 ended or does not answer")


def test_a_rank_that_is_killed_is_named(on_forks):
    def on_rank(group, rank):
        key = vectors(2, 4)
        regard.attend(vectors(3, 4), key, key, group=group)
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        regard.attend(vectors(3, 4), key, key, group=group)

    first, _, third = on_forks(3, on_rank, seconds=20)
    for error in (first, third):
        assert isinstance(error, RankError)
        assert error.rank == 1
