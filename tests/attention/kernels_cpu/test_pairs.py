"""Weights in pairs: what is divided by is the larger, and the unit spares the range."""

from __future__ import annotations

import numpy as np
import pytest

from regard.attention.kernels.cpu.pairs import LEAST, SHIFT, arrange


def _weights(kind: type, size: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(0).normal(size=(3, 16)) * size).astype(kind)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1.0, 1e-30, 1e30])
def test_the_unit_is_a_power_of_two_below_the_largest_weight(kind: type, size: float) -> None:
    weights = _weights(kind, size)
    pairs = arrange(weights)
    assert (np.frexp(pairs.unit)[0] == 0.5).all()
    assert np.array_equal(pairs.scaled * pairs.unit[:, None], weights), "nothing is rounded"
    largest = np.abs(pairs.scaled).max(-1)
    assert (largest >= 2.0 ** (SHIFT - 1)).all()
    assert (largest < 2.0**SHIFT).all()


def test_the_larger_of_a_pair_comes_first() -> None:
    pairs = arrange(_weights(np.float64))
    groups = pairs.scaled.reshape(3, 2, 8)
    sorted_ = np.take_along_axis(groups, pairs.order.reshape(3, 2, 8), -1)
    first, second = sorted_[..., ::2], sorted_[..., 1::2]
    assert (np.abs(first) >= np.abs(second)).all()
    assert np.allclose(pairs.inverse.reshape(first.shape), 1 / first)


def test_pairs_of_nothing_cancel() -> None:
    weights = _weights(np.float32)
    weights[:, 4:8] = 0
    pairs = arrange(weights)
    least = LEAST[np.float32]
    assert np.array_equal(pairs.scaled[:, 4:8], np.tile(np.float32([least, -least]), (3, 2)))
    assert (pairs.inverse[:, 2:4] == 1 / least).all()


def test_no_weight_at_all_is_no_division_by_zero() -> None:
    for row in arrange(np.zeros((1, 8), np.float32)):
        assert np.isfinite(row).all()
