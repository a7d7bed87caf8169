"""The largest of a row, and of a row of any length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from regard.loops.compiling import njit
from regard.loops.rows import largest, peak_of


@njit
def of(row: Any, at: int, n: int) -> Any:
    return largest(row, at, n)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("n", [16, 32, 48, 80])
def test_the_largest_is_found_wherever_it_is(kind, n):
    row = np.random.default_rng(n).normal(size=n + 6).astype(kind)
    row[:3] = row[-3:] = 9  # what lies around is not read
    for place in range(3, n + 3):
        raised = row.copy()
        raised[place] = 5
        assert of(raised, 3, n) == 5
    assert of(row, 3, n) == row[3:-3].max()


@pytest.mark.parametrize("place", [0, 17, 47])
def test_nan_is_passed_over(place):
    row = np.linspace(-2, -1, 48, dtype=np.float32)
    row[place] = np.nan
    assert of(row, 0, 48) == np.nanmax(row)
    assert of(np.full(16, -np.inf, np.float32), 0, 16) == -np.inf


@njit
def peak(row: Any) -> Any:
    return peak_of(row)


@pytest.mark.parametrize("n", [1, 15, 16, 37])
def test_the_peak_of_a_row_of_any_length(n):
    row = np.random.default_rng(n).normal(size=n).astype(np.float32)
    for place in range(n):
        raised = row.copy()
        raised[place] = 5
        assert peak(raised) == 5
    assert peak(row) == row.max()
    assert peak(np.full(n, -np.inf, np.float32)) == -np.inf
