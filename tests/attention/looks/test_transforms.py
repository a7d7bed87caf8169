"""Looks within torch's function transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import regard
from regard.attention import masks, scores
from regard.attention.looks import Look, StoredLook

HOW: dict[str, dict[str, Any]] = {
    "dots": {},
    "causal": {"mask": masks.causal(align="end")},
    "additive": {"score": scores.Additive(4, 4, 3).double()},
    "sparse": {"normaliser": "sparsemax"},
}
ANSWERS: dict[str, Callable[[Look], Tensor]] = {
    "entropy": lambda look: look.entropy(),
    "log_normaliser": lambda look: look.log_normaliser(),
    "weights": lambda look: look.weights(),
    "window": lambda look: look.weights(rows=[0, 2], columns=[1]),
    "received": lambda look: look.received(),
    "top": lambda look: look.top(3)[0],
    "top keys": lambda look: look.top(3)[1],
    "argmax": lambda look: look.argmax(),
    "map": lambda look: look.map(2, 3),
    "highest": lambda look: look.map(2, 3, reduce="max"),
    "distance": lambda look: look.distance(),
    "one head": lambda look: look[0].entropy(),
    "mean": lambda look: look.mean_heads().map(2, 2),
}
LEARNED = ("entropy", "log_normaliser", "weights", "window", "received", "one head")


def seeded(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


QUERY, KEY = seeded(3, 2, 5, 4), seeded(3, 2, 7, 4, seed=1)


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("options", HOW)
@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_vmap(options: str, answer: str) -> None:
    if (options, answer) == ("sparse", "log_normaliser"):
        pytest.skip("only a softmax has one")

    def ask(query: Tensor, key: Tensor) -> Tensor:
        return ANSWERS[answer](regard.look(query, key, **HOW[options]))

    expected = torch.stack([ask(query, key) for query, key in zip(QUERY, KEY, strict=True)])
    torch.testing.assert_close(torch.func.vmap(ask)(QUERY, KEY), expected)


@pytest.mark.parametrize("answer", LEARNED)
@pytest.mark.parametrize("options", HOW)
def test_func_grad(options: str, answer: str) -> None:
    if (options, answer) == ("sparse", "log_normaliser"):
        pytest.skip("only a softmax has one")

    def ask(query: Tensor) -> Tensor:
        return ANSWERS[answer](regard.look(query, KEY[0], **HOW[options])).square().sum()

    query = QUERY[0].clone().requires_grad_()
    ask(query).backward()
    torch.testing.assert_close(torch.func.grad(ask)(QUERY[0]), query.grad)


@pytest.mark.parametrize("answer", ["top", "argmax", "map", "distance"])
def test_answers_without_a_gradient_can_be_asked_within_func_grad(answer: str) -> None:
    def ask(query: Tensor) -> tuple[Tensor, Tensor]:
        return query.sum(), ANSWERS[answer](regard.look(query, KEY[0]))

    _, answer_values = torch.func.grad(ask, has_aux=True)(QUERY[0])
    torch.testing.assert_close(answer_values, ANSWERS[answer](regard.look(QUERY[0], KEY[0])))


def test_vmap_over_lengths_and_stored_weights() -> None:
    lengths = torch.tensor([7, 2, 0])

    def ask(query: Tensor, key: Tensor, length: Tensor) -> Tensor:
        return regard.look(query, key, mask=masks.padding(length)).entropy()

    expected = regard.look(QUERY, KEY, mask=masks.padding(lengths))
    torch.testing.assert_close(torch.func.vmap(ask)(QUERY, KEY, lengths), expected.entropy())
    stored = torch.func.vmap(lambda weights: StoredLook(weights).distance())(expected.weights())
    torch.testing.assert_close(stored, expected.distance())
