"""The device of a call is its tensors': torch's default device, as where models are built, is without effect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import regard
from regard.attention import masks, positions, scores
from regard.attention.kernels.choose import KERNELS, KernelRefusedError

SCORE = scores.Additive(4, 4, 3)
LENGTH = 12
MASKS: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "causal": lambda: "causal",
    "band": lambda: masks.band(2, 0),
    "padding": lambda: masks.padding([LENGTH, 5]),
    "documents": lambda: masks.documents(torch.arange(LENGTH, device="cpu") // 4),
    "packed": lambda: masks.packed([5, LENGTH - 5]),
    "function": lambda: lambda row, column: column <= row,
    "joined": lambda: masks.padding([LENGTH, 5]) & masks.band(2, 2),
}
CALLS = [  # the interpreter of triton is slow
    (kernel, mask, spoilt)
    for kernel in sorted(set(KERNELS) - {"triton"})
    for mask in MASKS
    for spoilt in (False, True)
]


def same(call: Callable[[], tuple[Any, ...]]) -> None:
    expected = call()
    with torch.device("meta"):
        actual = call()
    for a, b in zip(actual, expected, strict=True):
        equal = a == b if isinstance(a, str) else torch.allclose(a, b, equal_nan=True)
        assert equal


def draw(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), device="cpu")


@pytest.mark.parametrize(("kernel", "mask", "spoilt"), CALLS)
def test_of_kernels(kernel: str, mask: str, spoilt: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.attention.kernels.tiled.AREA", 1)
    monkeypatch.setattr("regard.attention.masks.tiles.STRIP", 3)
    x = draw(2, 2, LENGTH, 4)
    if spoilt:  # the last key of the second entry, which a mask may hide
        x[1, :, -1] = torch.nan
    x.requires_grad_()

    def call() -> tuple[Tensor, ...]:
        with regard.kernel(kernel):
            score = SCORE if kernel == "cpu" else None
            reading = regard.attend(x, x, x, mask=MASKS[mask](), score=score)
        return reading, *torch.autograd.grad(reading.nan_to_num().sin().sum(), x)

    try:
        same(call)
    except KernelRefusedError:
        assert kernel in ("sdpa", "matmul", "cpu")


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("normaliser", ["softmax", "hard", "sparsemax", "entmax", "identity"])
def test_of_normalisers(normaliser: str, dropout: float) -> None:
    query = draw(2, 3, 4)
    keys = torch.cat([query, query], -2).requires_grad_()  # each twice

    def call() -> tuple[Tensor, ...]:
        torch.manual_seed(0)
        reading = regard.attend(query, keys, keys, normaliser=normaliser, dropout=dropout)
        return reading, *torch.autograd.grad(reading.sin().sum(), keys)

    same(call)


@pytest.mark.parametrize("score", [None, lambda q, k: q @ k.mT], ids=["ours", "a function"])
def test_of_looks(score: Any) -> None:
    query = draw(2, LENGTH, 4).requires_grad_()

    def call() -> tuple[Any, ...]:
        look = regard.look(query, query, score=score, mask=masks.padding([LENGTH, 5]))
        entropy = look.entropy()
        gradients = torch.autograd.grad(entropy.sum(), query)
        selected_weights, page = look.weights(rows=[1, 2], columns=range(4)), look._repr_html_()
        return (
            entropy,
            selected_weights,
            look.map(3, 3),
            *look.top(2),
            look.received(),
            page,
            *gradients,
        )

    same(call)


def test_of_heads_and_positions() -> None:
    x = draw(2, LENGTH, 8)
    heads = regard.MultiHeadAttention(8, 2, rotary=positions.Rotary())
    block = regard.TransformerBlock(8, 2, dropout=0.1)

    def call() -> tuple[Tensor, ...]:
        torch.manual_seed(0)
        tables = positions.sinusoidal(3, 4, device="cpu"), positions.Alibi(2)(3, 3, device="cpu")
        return heads(x, memory=heads.remember(x), mask="causal"), block(x), *tables

    same(call)
