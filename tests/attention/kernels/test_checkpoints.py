"""Gradient checkpointing and other hooks on saved tensors: the gradients stay those of the plain call."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

import regard
from regard.attention import masks, scores

KINDS = ("checkpoint", "reentrant", "save_on_cpu", "copies")
LENGTHS = masks.padding([7, 3])


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.attention.kernels.blocked.BLOCK", 100)
    monkeypatch.setattr("regard.attention.kernels.tiled.AREA", 1)


def called(kind: str, function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    if kind in ("checkpoint", "reentrant"):
        result: Tensor = checkpoint(function, x, use_reentrant=kind == "reentrant")
        return result
    copies = saved_tensors_hooks(torch.clone, torch.clone)
    with {"plain": nullcontext(), "save_on_cpu": save_on_cpu(), "copies": copies}[kind]:
        return function(x)


def attention(kernel: str, score: Any) -> Callable[[Tensor], Tensor]:
    memory = torch.randn(2, 7, 4, generator=torch.Generator().manual_seed(1))

    def function(x: Tensor) -> Tensor:
        with regard.kernel(kernel):
            return regard.attend(x * 2, memory, memory, score=score, mask=LENGTHS).sin()

    return function


def bent() -> Any:
    matrix = nn.Parameter(torch.eye(4) + 0.5)
    score = nn.Module()
    score.matrix = matrix
    score.forward = lambda q, k: q @ score.matrix @ k.mT
    return score


SERVED = [(kernel, "general") for kernel in ("sdpa", "matmul")] + [
    (kernel, score)
    for kernel in ("blocked", "reference")
    for score in ("additive", "general", "a module")
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("kernel", "score"), [*SERVED, ("cpu", "additive")])
def test_gradients_are_those_of_the_plain_call(kernel: str, score: str, kind: str) -> None:
    torch.manual_seed(0)
    options = {"additive": scores.Additive(4, 4, 3), "general": scores.General(4, 4)}.get(score)
    options = bent() if options is None else options
    x = torch.randn(2, 5, 4, requires_grad=True)
    leaves = [x, *options.parameters()]

    def gradients(kind: str) -> list[Tensor]:
        for leaf in leaves:
            leaf.grad = None
        called(kind, attention(kernel, options), x).sum().backward()
        return [each.grad for each in leaves]

    for actual, expected in zip(gradients(kind), gradients("plain"), strict=True):
        assert torch.allclose(actual, expected, atol=1e-6)


@pytest.mark.parametrize("kind", ["checkpoint", "save_on_cpu", "copies"])
def test_gradients_of_gradients_too(kind: str) -> None:
    torch.manual_seed(0)
    score, x = scores.Additive(4, 4, 3), torch.randn(2, 5, 4, requires_grad=True)
    leaves = [x, *score.parameters()]

    def gradients(kind: str) -> Any:
        reading = called(kind, attention("blocked", score), x)
        (gradient,) = torch.autograd.grad(reading.sum(), x, create_graph=True)
        return torch.autograd.grad(gradient.square().sum(), leaves, allow_unused=True)

    for actual, expected in zip(gradients(kind), gradients("plain"), strict=True):
        assert actual is expected is None or torch.allclose(actual, expected, atol=1e-6)
