"""Looks of any shape in blocks of any size, and what the definitions say of the odd ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.attention.looks.oracle import Dense, bin_of
from torch import Tensor

import regard
from regard.attention import masks, normalisers
from regard.attention.looks import Look, StoredLook
from regard.attention.shapes import Frame, ShapeError

SIZES = st.integers(1, 40)
BLOCKS = st.sampled_from([1, 30, 200, 1 << 20])
SHUT: dict[str, Callable[[int], Any]] = {  # of as many keys
    "nothing": lambda keys: None,
    "causal": lambda keys: masks.causal(align="start"),
    "causal end": lambda keys: masks.causal(align="end"),
    "band": lambda keys: masks.band(3, 1),
    "padding": lambda keys: masks.padding([min(5, keys), 0, keys - keys // 4]),
    "both": lambda keys: masks.causal(align="end") & masks.padding([keys, min(3, keys), 1]),
    "either": lambda keys: masks.band(0, 0) | masks.band(-4, 6),
    "complement": lambda keys: ~masks.band(1, 1),
    "odd": lambda keys: lambda row, column: (row + column) % 3 > 0,
}


def ask(queries: int, keys: int, mask: Any = None, **how: Any) -> tuple[Look, Dense]:
    generator = torch.Generator().manual_seed(queries * 41 + keys)
    query, key = (
        torch.randn(3, 2, n, 4, generator=generator, dtype=torch.float64) for n in (queries, keys)
    )
    arguments = {"query": query, "key": key, "mask": mask, **how}
    return regard.look(**arguments), Dense.of(arguments)


def small_blocks(block: int) -> Any:
    return patch.multiple("regard.attention.looks.source", BLOCK=block), patch.multiple(
        "regard.attention.looks.source", LEAST=min(block, 32)
    )


@pytest.mark.parametrize("rule", SHUT)
@settings(max_examples=12)
@given(queries=SIZES, keys=SIZES, block=BLOCKS)
def test_any_shape_in_any_blocks(queries: int, keys: int, block: int, rule: str) -> None:
    queries = min(queries, 12 * block)  # blocks of one pair are as many as there are pairs
    look, exact = ask(queries, keys, SHUT[rule](keys))
    one, two = small_blocks(block)
    with one, two:
        for _ in range(2):  # the second time with the normalisers known
            assert torch.allclose(look.entropy(), exact.entropy(), atol=1e-12)
            assert torch.allclose(look.received(), exact.received(), atol=1e-12)
            assert torch.allclose(look.log_normaliser(), exact.log_normaliser(), atol=1e-12)
            assert torch.allclose(look.distance(), exact.distance(False), atol=1e-11)
        assert torch.allclose(look.top(4)[0], exact.ranked(4), atol=1e-12)


@given(queries=SIZES, keys=SIZES, block=BLOCKS, data=st.data())
def test_received_by_any_rows_with_any_weights(
    queries: int, keys: int, block: int, data: st.DataObject
) -> None:
    look, exact = ask(queries, keys, SHUT["causal"](keys))
    rows = data.draw(st.lists(st.integers(0, queries - 1), max_size=9))
    weights = torch.randn(2, len(rows), dtype=torch.float64)
    one, two = small_blocks(block)
    with one, two:
        got = look.received(rows=rows, weights=weights)
    assert torch.allclose(got, exact.received(rows, weights), atol=1e-12)


@given(
    queries=SIZES,
    keys=SIZES,
    height=st.integers(1, 50),
    width=st.integers(1, 50),
    block=BLOCKS,
    reduce=st.sampled_from(["mean", "max"]),
)
def test_a_map_of_any_resolution(
    queries: int, keys: int, height: int, width: int, block: int, reduce: str
) -> None:
    look, exact = ask(queries, keys, SHUT["band"](keys))
    one, two = small_blocks(block)
    with one, two:
        got = look.map(height, width, reduce=reduce)
    assert torch.allclose(got, exact.map(height, width, reduce), atol=1e-12)


@pytest.mark.parametrize("reduce", ["mean", "max"])
def test_a_map_of_a_window(reduce: str) -> None:
    look, exact = ask(20, 30, SHUT["causal end"](30))
    down, across = range(4, 19, 2), [29, 3, 7, 8, 20]
    window = Dense(exact.weights[..., down, :][..., across], exact.readable)
    got = look.map(3, 2, rows=down, columns=across, reduce=reduce)
    assert torch.allclose(got, window.map(3, 2, reduce), atol=1e-12)
    assert not look.map(3, 2, columns=range(0)).any()
    assert not look.map(3, 2, rows=range(0), reduce=reduce).any()


def test_a_map_adds_up() -> None:
    look, _ = ask(24, 16)
    assert torch.allclose(look.map(6, 4).sum((-2, -1)) * 16, torch.tensor(24.0).double())
    assert bin_of(1, 3, 7) == slice(2, 4)


def test_of_equals_the_first_key_comes_first() -> None:
    key = torch.tensor([[0.0], [1.0], [0.0], [1.0], [1.0]])
    look = regard.look(torch.ones(1, 1), key)
    assert look.top(5)[1].tolist() == [[1, 3, 4, 0, 2]]
    assert look.argmax().tolist() == [1]
    assert StoredLook(look.weights()).top(2)[1].tolist() == [[1, 3]]


@pytest.mark.parametrize("normaliser", [normalisers.Softmax(), normalisers.Sparsemax()], ids=str)
def test_a_row_with_nothing_to_read(normaliser: Any) -> None:
    mask = torch.tensor([[True, False, True], [False, False, False]])
    look = regard.look(torch.ones(2, 4), torch.ones(3, 4), mask=mask, normaliser=normaliser)
    assert look.entropy()[1] == 0
    assert look.perplexity()[1] == 1
    assert look.distance()[1] == 0
    assert look.argmax().tolist() == [0, -1]
    weights, found = look.top(3)
    assert found.tolist() == [[0, 2, -1], [-1, -1, -1]]
    assert weights.tolist() == [[0.5, 0.5, 0.0], [0.0, 0.0, 0.0]]
    if isinstance(normaliser, normalisers.Softmax):
        assert look.log_normaliser()[1] == -torch.inf


def test_the_entropy_of_keys_alike_is_the_log_of_their_number() -> None:
    look = regard.look(torch.zeros(2, 4), torch.zeros(5, 4))
    assert torch.allclose(look.entropy(), torch.tensor(5.0).log())
    assert torch.allclose(look.perplexity(), torch.tensor(5.0))


def test_there_is_an_answer_without_queries_or_keys() -> None:
    look = regard.look(torch.ones(2, 0, 4), torch.ones(2, 3, 4))
    assert look.entropy().shape == (2, 0)
    assert not look.received().any()
    assert not look.map(2, 2).any()
    look = regard.look(torch.ones(2, 3, 4), torch.ones(2, 0, 4))
    assert look.argmax().tolist() == [[-1] * 3] * 2
    assert look.top(2)[1].tolist() == [[[-1, -1]] * 3] * 2
    assert look.log_normaliser().tolist() == [[-torch.inf] * 3] * 2


@pytest.mark.parametrize("name", ["entropy", "top", "received", "map"])
@pytest.mark.parametrize("learning", [False, True])
def test_progress_is_told(name: str, learning: bool) -> None:
    told: list[tuple[int, int]] = []
    query = torch.randn(2, 9, 4, requires_grad=learning)
    look = regard.look(query, torch.randn(2, 7, 4))
    arguments: dict[str, tuple[int, ...]] = {"top": (2,), "map": (2, 2)}
    one, two = small_blocks(2)
    with one, two, patch("regard.attention.looks.weights.BLOCK", 20):
        getattr(look, name)(*arguments.get(name, ()), progress=lambda *at: told.append(at))
    assert told == sorted(told)
    assert told[-1] == (18, 18)
    assert len(told) > 3


@pytest.mark.parametrize("name", ["entropy", "received", "log_normaliser"])
def test_progress_is_told_of_what_a_function_of_the_callers_learns(name: str) -> None:
    told: list[tuple[int, int]] = []
    query, weight = torch.randn(2, 9, 4), torch.ones(4, requires_grad=True)
    look = regard.look(query, torch.randn(2, 7, 4), score=lambda q, k: (q * weight) @ k.mT)
    with patch("regard.attention.looks.source.BLOCK", 20):
        getattr(look, name)(progress=lambda *at: told.append(at))
    assert told == [(2 * (i + 1), 18) for i in range(9)]


def test_progress_is_told_of_windows() -> None:
    told: list[tuple[int, int]] = []
    look = regard.look(torch.randn(2, 9, 4), torch.randn(2, 7, 4))
    look.weights(columns=[2], progress=lambda *at: told.append(at))
    look.weights(progress=lambda *at: told.append(at))
    assert told[-1] == told[-2] == (18, 18)


@pytest.mark.parametrize("rule", [r for r in SHUT if isinstance(SHUT[r](1), masks.Mask)])
@given(queries=SIZES, keys=SIZES, data=st.data())
def test_the_reach_of_a_mask_holds_what_it_lets_read(
    rule: str, queries: int, keys: int, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, queries - 1))
    rows = range(start, data.draw(st.integers(start + 1, queries)))
    check_reach(SHUT[rule](keys), rows, Frame((3,), queries, keys, torch.device("cpu")))


@given(ids=st.lists(st.integers(0, 3), min_size=1, max_size=12), data=st.data())
def test_the_reach_of_documents(ids: list[int], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(ids) - 1))
    ids = sorted(ids) if data.draw(st.booleans()) else ids
    rows = range(start, data.draw(st.integers(start + 1, len(ids))))
    frame = Frame((), len(ids), len(ids), torch.device("cpu"))
    check_reach(masks.documents(torch.tensor(ids)), rows, frame)


def check_reach(mask: masks.Mask, rows: range, frame: Frame) -> None:
    dense = mask.dense(frame.batch, frame.queries, frame.keys)[..., list(rows), :]
    reach = mask.reach(rows, frame)
    outside = torch.ones(frame.keys, dtype=torch.bool)
    outside[reach.hull.start : reach.hull.stop] = False
    assert not dense[..., outside].any()
    assert dense[..., reach.common.start : reach.common.stop].all()
    assert len(reach.hull) <= frame.keys


def test_what_cannot_be_answered_is_said() -> None:
    look = regard.look(torch.ones(2, 4), torch.ones(3, 4))
    with pytest.raises(ValueError, match="count is -1"):
        look.top(-1)
    with pytest.raises(ValueError, match="height and width"):
        look.map(0, 3)
    with pytest.raises(ValueError, match='"mean" or "max"'):
        look.map(1, 3, reduce="sum")  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match=r"broadcast to \[2\]"):
        look.received(weights=torch.ones(3))
    with pytest.raises(TypeError, match="stored weights"):
        StoredLook(look.weights()).log_normaliser()


def test_the_mean_of_heads_is_a_look() -> None:
    look, exact = ask(5, 7, SHUT["padding"](7))
    mean = look.mean_heads()
    assert mean.shape == (3, 5, 7)
    assert torch.allclose(mean.weights(rows=[1, 4]), exact.weights.mean(1)[:, [1, 4]])
    assert torch.allclose(mean.received(), exact.received().mean(1))
    assert torch.allclose(
        mean.weights(rows=[1, 4], columns=[6, 0]), exact.weights.mean(1)[:, [1, 4]][..., [6, 0]]
    )
    assert mean.mean_heads().shape == (5, 7)
    with pytest.raises(TypeError, match="each head"):
        mean.log_normaliser()


def test_answers_take_no_gradient_and_leave_the_tensors_alone() -> None:
    query, key = torch.randn(2, 5, 4, requires_grad=True), torch.randn(2, 7, 4)
    before: tuple[Tensor, Tensor] = (query.detach().clone(), key.clone())
    look = regard.look(query, key, mask=masks.causal(align="start"))
    assert not look.top(2)[0].requires_grad
    assert not look.map(2, 2).requires_grad
    stored = StoredLook(before[0])
    stored.entropy(), stored.map(2, 2, reduce="max"), stored.top(2)
    assert torch.equal(stored.weights(), before[0])
    assert torch.equal(query, before[0])
    assert torch.equal(key, before[1])
