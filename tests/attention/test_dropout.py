"""Dropout by 16 bits: the mean, the rate, every part of a draw, and the gradient."""

from __future__ import annotations

import math

import pytest
import torch

from regard.attention.dropout import Dropout, keep


@pytest.mark.parametrize("rate", [0.001, 0.1, 0.5, 0.9, 0.999])
def test_the_share_dropped_and_the_mean(rate):
    torch.manual_seed(0)
    count = 1 << 20
    factors = keep(torch.empty(count), rate)
    rounded = round(65536 * rate) / 65536
    dropped = int((factors == 0).sum())
    assert abs(dropped - count * rounded) < 5 * math.sqrt(count * rounded * (1 - rounded))
    assert factors.unique().tolist() == pytest.approx([0.0, 1 / (1 - rounded)])
    assert float(factors.double().mean()) == pytest.approx(1, abs=5 * math.sqrt(1000 / count))


def test_each_part_of_a_draw_is_fair():
    """The top bits too: were its first bit always 0, nothing would be kept less often there."""
    torch.manual_seed(1)
    kept_cells = keep(torch.empty(1 << 20), 0.5).view(-1, 4) > 0
    shares = kept_cells.double().mean(0)
    assert float((shares - 0.5).abs().max()) < 5 * 0.5 / math.sqrt(len(kept_cells))


def test_neighbours_are_independent():
    torch.manual_seed(2)
    kept_cells = (keep(torch.empty(1 << 20), 0.5) > 0).double() - 0.5
    for distance in (1, 3, 4, 64):
        together = float((kept_cells[:-distance] * kept_cells[distance:]).mean())
        assert abs(together) < 5 * 0.25 / math.sqrt(len(kept_cells))


@pytest.mark.parametrize("shape", [(0,), (1,), (3, 5), (2, 0, 4), (7, 1, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_any_shape_and_precision(shape, dtype):
    factors = keep(torch.empty(shape, dtype=dtype), 0.3)
    assert factors.shape == shape
    assert factors.dtype == dtype


def test_the_gradient_is_the_factor():
    torch.manual_seed(3)
    x = torch.randn(6, 50, dtype=torch.float64).t().requires_grad_()
    y = Dropout(0.4)(x)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gradient * x, y)
    assert bool((gradient == 0).any())


def test_nothing_happens_without_training_or_rate():
    x = torch.randn(5)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x
    for rate in (-0.1, 1.0, math.nan):
        with pytest.raises(ValueError, match="pass a rate"):
            Dropout(rate)


def test_one_seed_one_draw():
    def mask_of(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return Dropout(0.5)(torch.ones(100))

    assert torch.equal(mask_of(1), mask_of(1))
    assert not torch.equal(mask_of(1), mask_of(2))
