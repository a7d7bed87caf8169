"""Pre-activations as large as they come: exact, and never NaN."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from regard.attention.kernels.additive.cpu.operator import additive

NOTHING = (None,) * 6


def _eager(a: Tensor, c: Tensor, w: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(torch.tanh(a.unsqueeze(-2) + c.unsqueeze(-3)) @ w, -1) @ v


def _ours(a: Tensor, c: Tensor, w: Tensor, v: Tensor) -> Tensor:
    return additive(a, c, w, v, *NOTHING, 0.0, 1.0)[0]


def _all(function, inputs: tuple[Tensor, ...], dtype: torch.dtype) -> list[Tensor]:
    leaves = [tensor.to(dtype).requires_grad_() for tensor in inputs]
    reading = function(*leaves)
    slope = torch.linspace(-1, 1, reading.numel(), dtype=dtype).sin().view(reading.shape)
    return [reading.detach(), *torch.autograd.grad(reading, leaves, slope)]


def _signs(shape: tuple[int, ...], rate: float = 1.0) -> Tensor:
    signs = torch.where(torch.rand(shape) < 0.5, 1e4, -1e4)
    return signs * (torch.rand(shape) < rate)


def draw_inputs(kind: str) -> tuple[Tensor, ...]:
    torch.manual_seed(len(kind))
    a, c, w, v = torch.randn(17, 40), torch.randn(90, 40), torch.randn(40) / 6, torch.randn(90, 8)
    match kind:
        case "small":
            return a * 0.1, c * 0.1, w, v
        case "wide":
            return a * 6, c * 6, w, v
        case "wider":
            return a * 15, c * 15, w, v
        case "mixed":
            return a + _signs(a.shape), c + _signs(c.shape), w, v
        case "few":
            return a + _signs(a.shape, 0.03), c, w, v
        case "few keys":
            return a, c + _signs(c.shape, 0.03), w, v
        case "opposed":
            return a + 1e4, c - 1e4, w, v
        case "scaled":
            return a * 1e4, c * 1e4, w, v
        case "large weights":
            return a, c, w * 10, v
        case "tiny weights":
            return a, c, w * 1e-30, v
    return a, c, w, v


NAMES = "plain,small,wide,wider,mixed,few,few keys,opposed,scaled,large weights,tiny weights".split(
    ","
)


@pytest.mark.parametrize("kind", NAMES)
def test_the_error_is_about_that_of_eager_torch(kind: str) -> None:
    inputs = draw_inputs(kind)
    exact = _all(_eager, inputs, torch.float64)
    eager, ours = _all(_eager, inputs, torch.float32), _all(_ours, inputs, torch.float32)
    for truth, theirs, mine in zip(exact, eager, ours, strict=True):
        assert mine.isfinite().all()
        size = truth.abs().max().clamp_min(1e-30)
        error, allowed = (mine - truth).abs().max() / size, (theirs - truth).abs().max() / size
        assert error <= 4 * allowed + 1e-6


@pytest.mark.parametrize("kind", NAMES)
def test_float64_is_exact(kind: str) -> None:
    inputs = draw_inputs(kind)
    exact, ours = _all(_eager, inputs, torch.float64), _all(_ours, inputs, torch.float64)
    for truth, mine in zip(exact, ours, strict=True):
        assert (mine - truth).abs().max() <= 1e-11 * truth.abs().max().clamp_min(1e-30)


@pytest.mark.parametrize("spoilt", [float("nan"), float("inf")])
def test_a_masked_key_may_hold_anything(spoilt: float) -> None:
    a, c, w, v = draw_inputs("plain")
    mask = torch.arange(90) < 50
    clean = additive(a, c, w, v, *(None,) * 5, mask[None], 0.0, 1.0)[0]
    dirty = c.clone()
    dirty[50:] = spoilt
    read = additive(a, dirty, w, v, *(None,) * 5, mask[None], 0.0, 1.0)[0]
    assert torch.allclose(read, clean, atol=1e-6)


def test_a_nan_that_is_read_is_not_hidden() -> None:
    a, c, w, v = draw_inputs("plain")
    c[3, 5] = float("nan")
    assert _ours(a, c, w, v).isnan().all()
