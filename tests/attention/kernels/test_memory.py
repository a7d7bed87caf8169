"""A caller's own score is read in linear memory, forwards, backwards and by looks: bytes counted."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.attention.kernels.live import Live
from torch import Tensor

import regard
from regard.attention import masks
from regard.attention.kernels import blocked
from regard.attention.looks import source

LONG, MATRIX = 512, 512 * 512 * 4


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocked, "BLOCK", 1 << 14)
    monkeypatch.setattr(source, "BLOCK", 1 << 14)


def draw(*shapes: tuple[int, ...]) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(shape).requires_grad_() for shape in shapes]


def peak(kernel: str, normaliser: Any = None) -> int:
    query, key, value, stretch = leaves = draw((LONG, 4), (LONG, 4), (LONG, 4), (4, 4))
    with Live() as live, regard.kernel(kernel):
        reading = regard.attend(
            query,
            key,
            value,
            score=lambda q, k: torch.tanh(q @ stretch @ k.mT),
            normaliser=normaliser,
            mask=masks.causal(align="end"),
        )
        torch.autograd.grad(reading.square().sum(), leaves)
    return live.peak


def test_the_count_sees_a_matrix_and_that_it_is_freed() -> None:
    with Live() as live:
        query = torch.ones(LONG, 4)
        (query @ query.mT).sum()
        (query @ query.mT).sum()
    assert MATRIX <= live.peak < 1.5 * MATRIX


@pytest.mark.parametrize("normaliser", [None, torch.sigmoid], ids=["softmax", "own"])
def test_gradients_through_a_callers_score_take_no_matrix(normaliser: Any) -> None:
    assert peak("blocked", normaliser) < MATRIX / 2
    assert peak("reference", normaliser) > 2 * MATRIX


@pytest.mark.parametrize("ask", ["received", "entropy", "argmax", "top"])
def test_a_look_at_a_callers_score_takes_no_matrix(ask: str) -> None:
    query, key, stretch = (tensor.detach() for tensor in draw((LONG, 4), (LONG, 4), (4, 4)))
    look = regard.look(query, key, score=lambda q, k: torch.tanh(q @ stretch @ k.mT))
    with Live() as live:
        answers = look.top(2) if ask == "top" else getattr(look, ask)()
    assert answers is not None
    assert 0 < live.peak < MATRIX / 2
