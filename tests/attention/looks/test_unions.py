"""Looks at masks joined by `|` score the keys that each of them reads, and none of those between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import regard
from regard import masks
from regard.attention.looks import source
from regard.attention.looks.look import Look

LENGTH, WIDTH = 640, 8
FIRST = masks.padding([4])
MASKS = {
    "band | prefix": masks.band(16, 0) | FIRST,
    "two bands": masks.band(300, -290) | masks.band(3, 3),
    "within causal": masks.causal(align="start") & (masks.band(20, 20) | FIRST),
    "not a band": ~masks.band(200, 440),
}
ANSWERS: dict[str, Callable[[Look], Any]] = {
    "received": lambda look: look.received(),
    "received of rows": lambda look: look.received(rows=[3, 600, 601]),
    "entropy": lambda look: look.entropy(),
    "log-normaliser": lambda look: look.log_normaliser(),
    "top": lambda look: look.top(25),
    "argmax": lambda look: look.argmax(),
    "mean map": lambda look: look.map(7, 9),
    "max map": lambda look: look.map(7, 9, columns=range(100, 500), reduce="max"),
    "distance": lambda look: look.distance(signed=True),
    "weights": lambda look: look.weights(rows=range(600, 640), columns=[0, 5, 610]),
    "all weights": lambda look: look.weights(rows=range(LENGTH)),
    "mean of heads": lambda look: look.mean_heads().received(),
}


@pytest.fixture
def scored(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of scores of the blocks that were computed."""
    sizes: list[int] = []
    for kind in (source.ProductBlocks, source.AdditiveBlocks):

        def write(self: Any, scores: Tensor, *place: Any, plain: Any = kind._write) -> None:
            sizes.append(scores.numel())
            plain(self, scores, *place)

        monkeypatch.setattr(kind, "_write", write)
    return sizes


def _inputs(score: str, heads: int = 2) -> tuple[Tensor, Tensor, dict[str, Any]]:
    torch.manual_seed(3)
    query, key = (torch.randn(heads, LENGTH, WIDTH) for _ in range(2))
    additive = regard.scores.Additive(WIDTH, WIDTH, 8, bias=True).requires_grad_(False)
    return query, key, {"score": additive if score == "additive" else None}


@pytest.mark.parametrize("score", ["dots", "additive"])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_answers_are_those_of_the_mask_written_out(score, mask, scored):
    query, key, options = _inputs(score)
    dense = mask.dense((2,), LENGTH, LENGTH)
    union = regard.look(query, key, mask=mask, **options)
    written_out = regard.look(query, key, mask=dense, **options)
    for name, answer in ANSWERS.items():
        torch.testing.assert_close(
            answer(union), answer(written_out), atol=1e-5, rtol=1e-4, msg=name
        )


@pytest.mark.parametrize("score", ["dots", "additive"])
@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "ALiBi"])
def test_keys_between_are_not_scored(score, bias, scored):
    query, key, options = _inputs(score)
    if bias:
        options["bias"] = regard.positions.Alibi(2)
    mask = MASKS["band | prefix"]
    look = regard.look(query, key, mask=mask, **options)
    for answer in (look.received, look.entropy, lambda: look.map(8, 8), lambda: look.top(3)):
        scored.clear()
        answer()
        hull = 2 * LENGTH * LENGTH // 2
        assert 0 < sum(scored) < 0.6 * hull


@pytest.mark.parametrize("answer", ["received", "entropy"])
def test_gradients_are_those_of_the_mask_written_out(answer):
    query, key, _ = _inputs("dots", 1)
    query.requires_grad_(), key.requires_grad_()
    mask = MASKS["band | prefix"]
    gradients = []
    for each in (mask, mask.dense((1,), LENGTH, LENGTH)):
        answers = getattr(regard.look(query, key, mask=each), answer)()
        gradients.append(torch.autograd.grad(answers.sin().sum(), (query, key)))
    for ours, exact in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, exact, atol=1e-5, rtol=1e-4)
