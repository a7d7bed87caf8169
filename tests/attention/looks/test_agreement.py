"""Every answer, over the shared table of cases, equals the one from dense float64 weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.agreement.cases import CASES, Case
from tests.agreement.comparing import TOLERANCE, compare
from tests.attention.looks.oracle import Dense, without_value
from torch import Tensor

import regard
from regard.attention.looks import Look, StoredLook, source
from regard.attention.normalisers import Softmax

EVERY_CASE = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
BLOCKS = pytest.mark.parametrize("block", [1 << 20, 40], ids=lambda block: f"block {block}")


def look_and_dense(case: Case, learning: bool = False) -> tuple[Look, Dense]:
    built = case.build()
    with torch.no_grad():
        exact = Dense.of(built.arguments(torch.float64))
    arguments = without_value(built.arguments(case.dtype))
    if not learning:
        arguments = {n: a.detach() if isinstance(a, Tensor) else a for n, a in arguments.items()}
        if isinstance(arguments["score"], torch.nn.Module):
            arguments["score"].requires_grad_(False)
    return regard.look(**arguments), exact


def check(case: Case, name: str, actual: Tensor, exact: Tensor) -> None:
    """Half precisions are computed in float32 from what they hold, so they are as exact."""
    tolerance = TOLERANCE[torch.promote_types(case.dtype, torch.float32)] * case.slack
    is_lowest = exact == -torch.inf
    assert torch.equal(actual == -torch.inf, is_lowest), name
    assert not actual.requires_grad
    # `exact` may be nan: the entropy of weights below 0. A log-normaliser may be out of range.
    is_lowest = is_lowest | exact.isnan() | (exact.abs() > torch.finfo(actual.dtype).max)
    assert torch.equal(actual.isnan(), exact.isnan()), name
    compare(name, actual.masked_fill(is_lowest, 0.0), exact.masked_fill(is_lowest, 0.0), tolerance)


def reads_of(exact: Dense, actual: Tensor, result: Tensor) -> Tensor:
    """The exact weights at the positions found."""
    at = result.clamp(min=0)
    if not exact.weights.shape[-1]:
        return torch.zeros_like(actual, dtype=torch.float64)
    assert bool(exact.readable.gather(-1, at)[result >= 0].all())
    return torch.where(result >= 0, exact.weights.gather(-1, at), 0.0)


def check_answers(case: Case, look: Look, exact: Dense) -> None:
    check(case, "entropy", look.entropy(), exact.entropy())
    check(case, "perplexity", look.perplexity().log(), exact.entropy())
    check(case, "received", look.received(), exact.received())
    check(case, "distance", look.distance(), exact.distance(False))
    check(case, "signed distance", look.distance(signed=True), exact.distance(True))
    weights, places = look.top(3)
    check(case, "top", weights, exact.ranked(3))
    check(case, "top", weights, reads_of(exact, weights, places))
    readable = exact.readable.sum(-1, keepdim=True)
    assert torch.equal(places >= 0, torch.arange(3) < readable)
    assert torch.equal(look.argmax(), places[..., 0])
    queries, keys = look.shape[-2:]
    for reduce in ("mean", "max"):
        if queries and keys:
            height, width = min(9, (queries + 1) // 2), min(11, max(1, keys - 2))
            actual = look.map(height, width, reduce=reduce)
            check(case, f"{reduce} map", actual, exact.map(height, width, reduce))


@BLOCKS
@EVERY_CASE
def test_the_answers_are_those_of_the_dense_weights(
    case: Case, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.attention.looks.source.LEAST", 1)
    look, exact = look_and_dense(case)
    blocks_at_most = 60
    monkeypatch.setattr(source, "BLOCK", max(block, math.prod(look.shape) // blocks_at_most))
    if exact.scores is not None:
        check(case, "log-normaliser", look.log_normaliser(), exact.log_normaliser())
    else:
        with pytest.raises(TypeError, match="log-normaliser"):
            look.log_normaliser()
    check_answers(case, look, exact)
    check_answers(case, look, exact)  # from the normalisers that were kept


@EVERY_CASE
def test_so_are_those_of_stored_weights(case: Case) -> None:
    _, exact = look_and_dense(case)
    exact.readable = exact.weights != 0
    double = Case(case.name, dtype=torch.float64)
    check_answers(double, StoredLook(exact.weights), exact)


@EVERY_CASE
def test_so_are_those_that_want_a_gradient(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.attention.looks.weights.BLOCK", 40)
    look, exact = look_and_dense(case, learning=True)
    check(case, "received", look.received().detach(), exact.received())
    check(case, "entropy", look.entropy().detach(), exact.entropy())
    if exact.scores is not None:
        check(case, "log-normaliser", look.log_normaliser().detach(), exact.log_normaliser())


@EVERY_CASE
def test_so_are_those_of_the_mean_of_heads(case: Case) -> None:
    look, exact = look_and_dense(case)
    if len(look.shape) < 3:
        with pytest.raises(regard.attention.shapes.ShapeError, match="no axis of heads"):
            look.mean_heads()
        return
    if not look.shape[-3]:
        pytest.skip("a mean of no heads")
    mean = Dense(exact.weights.mean(-3), exact.readable.any(-3))
    mean.readable = mean.weights != 0
    double = Case(case.name, dtype=case.dtype, slack=case.slack)
    if case.slack == 1:
        check_answers(double, look.mean_heads(), mean)
    check(double, "received", look.mean_heads().received(), mean.received())


@pytest.mark.parametrize("normalised", [False, True])
@EVERY_CASE
def test_so_are_those_of_scaled_weights(case: Case, normalised: bool) -> None:
    look, exact = look_and_dense(case)
    if case.slack != 1 or bool((exact.weights < 0).any()):
        pytest.skip("its rounding is larger than the tolerance of a product, or rows cancel")
    factors = 0.5 + torch.arange(look.shape[-1], dtype=torch.float64) % 3
    weights = exact.weights * factors
    if normalised:
        total = weights.sum(-1, keepdim=True)
        weights = weights / torch.where(total == 0, 1.0, total)
    scaled = Dense(weights, weights != 0)
    check_answers(case, look.scaled(factors, normalised=normalised), scaled)
    with pytest.raises(TypeError, match="log-normaliser"):
        look.scaled(factors).log_normaliser()
    with pytest.raises(regard.attention.shapes.ShapeError, match="one a key"):
        look.scaled(torch.ones(look.shape[-1] + 2))


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("entropy", lambda dense: dense.entropy() + 1e-4),
        ("received", lambda dense: dense.received().roll(1, -1)),
    ],
)
def test_a_wrong_answer_would_be_caught(name: str, spoil: Callable[[Dense], Any]) -> None:
    look, exact = look_and_dense(CASES[0])
    with pytest.raises(AssertionError, match="off by"):
        check(CASES[0], name, getattr(look, name)(), spoil(exact))


def test_the_table_has_softmaxes_and_others() -> None:
    kinds = {case.normaliser is None or type(case.normaliser) is Softmax for case in CASES}
    assert kinds == {True, False}
