"""Weights in groups: what is divided by keeps within the range, whatever the weights and their order."""

from __future__ import annotations

import numpy as np
import pytest

from regard.attention.kernels.additive.cpu.groups import GAP, GROUP, arrange

KINDS = [np.float32, np.float64]


def _weights(kind: type, size: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(0).normal(size=(3, 32)) * size).astype(kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1.0, 1e-30, 1e30])
def test_the_ratios_give_the_weights_back(kind: type, size: float) -> None:
    weights = _weights(kind, size)
    ratios, turns = arrange(weights)
    second = turns[:, 1::2]
    units = np.stack((turns[:, ::2] * second, second), -1).reshape(3, -1)
    assert (np.frexp(units)[0] == 0.5).all()
    products = units.repeat(GROUP, -1) / ratios
    assert np.allclose(products, weights, rtol=4 * np.finfo(kind).eps, atol=0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("large", range(GROUP + 1))
@pytest.mark.parametrize("first_factor", [True, False])
def test_no_partial_product_underflows(kind: type, large: int, first_factor: bool) -> None:
    """`large` weights of 1 in a group beside none at all, in front or behind, in two groups."""
    weights = np.zeros((1, 4 * GROUP), kind)
    weights[0, -1] = 1
    for group in range(2):
        start = group * GROUP if first_factor else group * GROUP + GROUP - large
        weights[0, start : start + large] = 1
    ratios = arrange(weights)[0].reshape(2, 2 * GROUP)
    partial = np.cumsum(np.log2(np.abs(ratios).astype(np.float64)), -1)
    assert partial.min() >= np.log2(np.finfo(kind).tiny)


def test_what_is_nothing_beside_the_largest_counts_as_little() -> None:
    weights = _weights(np.float32)
    weights[:, 4:8] = 0
    ratios, turns = arrange(weights)
    unit = turns[:, 0] * turns[:, 1]
    counted = unit[:, None] / ratios[:, 4:8]
    assert np.allclose(counted, 2.0 ** -GAP[np.float32] * np.abs(weights).max(-1, keepdims=True))


def test_no_weight_at_all_is_no_division_by_zero() -> None:
    for row in arrange(np.zeros((1, 16), np.float32)):
        assert np.isfinite(row).all()
