"""Looks at scores with a bias that is a function of positions: the answers of the bias written out, without it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.attention.kernels.live import Live
from torch import Tensor

import regard
from regard.attention import masks
from regard.attention.looks import Look, source
from regard.attention.positions import Alibi, RelativeBias
from regard.attention.scores import Additive, ScaledDot

QUERIES, KEYS, HEADS = 9, 11, 3


def masked_bias(query: Tensor, key: Tensor) -> Tensor:
    return torch.where(key == query, -torch.inf, (key - query) / 7.0)


BIASES: dict[str, Any] = {
    "alibi": Alibi(HEADS),
    "relative": RelativeBias(HEADS, buckets=8),
    "shut": masked_bias,
}
SCORES = {
    "dots": ScaledDot(),
    "additive": Additive(4, 4, 6),
    "function": lambda query, key: torch.tanh(query @ key.mT),
}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "BLOCK", 64)
    monkeypatch.setattr(source, "LEAST", 3)


def looks(score: str, name: str, **options: Any) -> tuple[Look, Look, list[Tensor]]:
    """The look with the function, that with its numbers, and the tensors that both are made of."""
    torch.manual_seed(0)
    sides = [torch.randn(2, HEADS, n, 4, requires_grad=True) for n in (QUERIES, KEYS)]
    bias, leaves = BIASES[name], list(sides)
    if isinstance(bias, RelativeBias):
        leaves.append(bias.weight)
    numbers = getattr(bias, "between", bias)(torch.arange(QUERIES)[:, None], torch.arange(KEYS))
    options |= {"score": SCORES[score], "mask": masks.band(6, 3) & masks.padding([KEYS, 7])}
    return *(regard.look(*sides, bias=each, **options) for each in (bias, numbers)), leaves


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("name", BIASES)
@pytest.mark.parametrize(
    "change",
    [lambda look: look, lambda look: look[1, ..., 1:], lambda look: look.mean_heads()],
    ids=["all", "entries", "mean"],
)
def test_the_answers_are_those_of_the_numbers(score: str, name: str, change: Any) -> None:
    look, exact = map(change, looks(score, name)[:2])
    assert look.shape == exact.shape
    with torch.no_grad():
        for answer in ("weights", "entropy", "received", "distance", "readable"):
            torch.testing.assert_close(getattr(look, answer)(), getattr(exact, answer)())
        torch.testing.assert_close(look.top(3), exact.top(3))
        torch.testing.assert_close(look.weights(rows=[4, 2]), exact.weights(rows=[4, 2]))


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("name", BIASES)
@pytest.mark.parametrize("answer", ["entropy", "log_normaliser", "received"])
def test_gradients_are_those_of_the_numbers(score: str, name: str, answer: str) -> None:
    look, exact, leaves = looks(score, name)
    leaves += [*SCORES[score].parameters()] if score == "additive" else []
    slopes = [
        torch.autograd.grad(getattr(side, answer)().sin().sum(), leaves, allow_unused=True)
        for side in (look, exact)
    ]
    for slope, expected in zip(*slopes, strict=True):
        torch.testing.assert_close(slope, expected)


@pytest.mark.parametrize("score", ["dots", "function"])
@pytest.mark.parametrize("name", BIASES)
def test_no_look_writes_the_bias_out(
    score: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "BLOCK", 1 << 13)
    query, key = torch.randn(2, HEADS, 256, 4)
    with torch.no_grad(), Live() as live:
        look = regard.look(query, key, score=SCORES[score], bias=BIASES[name])
        look.entropy(), look.top(2)
    assert live.peak < HEADS * 256 * 256 * 4
