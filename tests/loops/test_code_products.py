"""Sums over codes in whole numbers are those of numpy's 64 bits, to the ends of their range."""

import numba
import numpy as np
import pytest

from regard.loops.code_products import LANES, weighted_difference


@pytest.mark.parametrize("count", [LANES, 3 * LANES])
def test_sums_of_weighted_differences(count):
    summed = weighted_difference(count, 64)

    @numba.njit
    def compute(codes, query, sums):
        for row in range(len(codes)):
            sums[row] = summed(codes, row, query)

    dice = np.random.default_rng(1)
    codes = dice.integers(-127, 128, (20, count)).astype(np.int8)
    codes[0], codes[1] = 127, -127
    for query in (dice.integers(-24576, 24577, count), np.full(count, -24576)):
        sums = np.empty(len(codes), np.int32)
        compute(codes, query.astype(np.int16), sums)
        wide = codes.astype(np.int64)
        assert sums.tolist() == (wide * (64 * wide - query)).sum(1).tolist()
