"""Products with packed weights are torch's, whatever part of a tile or panel the sizes fill."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numba import njit

from regard.translation.engines.compiled import products


@njit(error_model="numpy")
def multiply(x, rows, depth, weights, at, width, tile, out):
    products.multiply(x, rows, depth, weights, at, width, tile, out)


def product(x: torch.Tensor, weight: torch.Tensor, at: int = 0) -> torch.Tensor:
    """x W^T, with the panels of W behind `at` other numbers."""
    (rows, depth), width = x.shape, len(weight)
    panels = torch.cat([torch.full((at,), torch.nan), products.packed(weight)]).numpy()
    out = np.full(rows * width, 7, np.float32)
    tile = np.zeros(products.ROWS * products.COLUMNS, np.float32)
    multiply(x.flatten().numpy(), rows, depth, panels, at, width, tile, out)
    return torch.from_numpy(out).view(rows, width)


@pytest.mark.parametrize("rows", [*range(1, 8), 13])
@pytest.mark.parametrize(("depth", "width"), [(1, 1), (4, 64), (37, 71), (256, 130)])
def test_packed_weights_give_the_product(rows, depth, width):
    generator = torch.Generator().manual_seed(rows)
    x, weight = (torch.randn(n, depth, generator=generator) for n in (rows, width))
    expected = (x.double() @ weight.double().t()).float()
    torch.testing.assert_close(product(x, weight, at=5), expected, atol=2e-5, rtol=2e-5)


def test_numbers_that_are_not_finite_stay_in_their_row():
    x = torch.ones(3, 8)
    x[1, 2], x[2, 3] = torch.nan, torch.inf
    result = product(x, torch.ones(20, 8))
    assert torch.equal(result[0], torch.full((20,), 8.0))
    assert not result[1:].isfinite().any()
