"""Half precisions lose no more where gradients are wanted than where they are not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import regard
from regard.attention import masks

HALF_TYPES = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)


def draw(dtype: torch.dtype, size: float) -> list[Tensor]:
    generator = torch.Generator().manual_seed(2)
    return [(torch.randn(4, 30, 32, generator=generator) * size).to(dtype) for _ in range(3)]


def error(reading: Tensor, exact: Tensor) -> float:
    return (reading.double() - exact).abs().max().item()


@pytest.mark.parametrize(
    "options", [{}, {"mask": masks.causal(align="start")}], ids=["all", "causal"]
)
@pytest.mark.parametrize("size", [1.0, 4.0])
@HALF_TYPES
def test_a_reading_with_gradients_is_as_exact_as_one_without(
    dtype: torch.dtype, size: float, options: dict[str, Any]
) -> None:
    halves = draw(dtype, size)
    leaves = [each.double().requires_grad_() for each in halves]
    exact = regard.attend(*leaves, **options)
    slopes = torch.autograd.grad(exact.sum(), leaves)
    plain = regard.attend(*halves, **options)
    trained = [each.requires_grad_() for each in halves]
    assert regard.explain(*trained, **options).kernel == "matmul"
    reading = regard.attend(*trained, **options)
    assert reading.dtype == dtype
    assert error(reading, exact) <= 1.01 * error(plain, exact)
    # What a rounding of the numbers alone may change; scores in half precision gave 20 times that.
    for actual, slope in zip(torch.autograd.grad(reading.sum(), trained), slopes, strict=True):
        assert error(actual, slope) <= 0.01 * max(1.0, slope.abs().max().item())


def test_under_autocast_too() -> None:
    halves = draw(torch.bfloat16, 4.0)
    exact = regard.attend(*(each.double() for each in halves))
    trained = [each.float().requires_grad_() for each in halves]
    with torch.autocast("cpu", torch.bfloat16):
        assert regard.explain(*trained).kernel == "matmul"
        reading = regard.attend(*trained)
    assert reading.dtype == torch.bfloat16
    assert error(reading, exact) <= error(exact.bfloat16(), exact) * 1.01
