"""Products with values: blending them by weights, and the two gradients of that.

A tile has ROWS queries. Its readings, or their gradients, are `width` apart; its weights, or theirs, STRIDE apart.
"""

from typing import Any

import numpy as np

from regard.attention.kernels.additive.cpu.features import GAP, SIDE, STRIDE, STRIP, turn
from regard.attention.kernels.additive.cpu.hidden import ROWS
from regard.loops.compiling import inner, lanes, lanes_inlined
from regard.loops.rows import clear, copy
from regard.loops.vectors import load, load_four, repeat, splat, store, store_four, width_of

HALF = 4  # rows of a tile whose sums or factors are one tuple of vectors


@inner
def blend(
    reading: Any, weights: Any, left: Any, keys: Any, value: Any, at: Any, width: Any
) -> None:
    """reading_i += sum_j p_ij v_j over some keys, for all ROWS of a tile; those beyond its queries hold anything.

    Args:
        weights: p, from column `left` on.
        value: the values of these keys, from `at` on.
    """
    lanes()
    wide = width_of(reading)
    whole = width // wide * wide
    # A vector of columns at a time, for all rows; then the columns that fill no vector.
    for column in range(0, whole, wide):
        _blend_columns(reading, column, weights, left, keys, value, at + column, width)
    for row in range(ROWS if whole < width else 0):
        for j in range(keys):
            to, value_at = row * width, at + j * width
            weight = weights[row * STRIDE + left + j]
            for column in range(whole, width):
                reading[to + column] += weight * value[value_at + column]


@inner
def _blend_columns(
    reading: Any, to: Any, weights: Any, left: Any, keys: Any, value: Any, at: Any, width: Any
) -> None:
    """One vector of columns of each row: the sums stay in registers while the keys pass."""
    lanes_inlined()
    upper, lower = load_four(reading, to, width), load_four(reading, to + HALF * width, width)
    for j in range(keys):
        numbers = load(value, at + j * width)
        upper = _add_products(upper, weights, left + j, STRIDE, numbers)
        lower = _add_products(lower, weights, left + j + HALF * STRIDE, STRIDE, numbers)
    store_four(reading, to, width, upper)
    store_four(reading, to + HALF * width, width, lower)


@inner
def _add_products(sums: Any, factors: Any, at: Any, apart: Any, vector: Any) -> Any:
    """Four sums, to each of which a factor times the vector is added."""
    lanes_inlined()
    third = at + 2 * apart
    sum_0 = sums[0] + repeat(factors, at) * vector
    sum_1 = sums[1] + repeat(factors, at + apart) * vector
    sum_2 = sums[2] + repeat(factors, third) * vector
    sum_3 = sums[3] + repeat(factors, third + apart) * vector
    return sum_0, sum_1, sum_2, sum_3


@inner
def _sum_products(total: Any, factors: Any, at: Any, apart: Any, vectors: Any) -> Any:
    """One sum, to which four factors times four vectors are added."""
    lanes_inlined()
    third = at + 2 * apart
    total = total + repeat(factors, at) * vectors[0]
    total = total + repeat(factors, at + apart) * vectors[1]
    total = total + repeat(factors, third) * vectors[2]
    return total + repeat(factors, third + apart) * vectors[3]


@inner
def scale_row(row: Any, at: Any, width: Any, factor: Any) -> None:
    lanes()
    start = np.uint64(at)
    for column in range(np.uint64(width)):
        row[start + column] *= factor


@inner
def value_gradient(
    gradient: Any, to: Any, weights: Any, left: Any, keys: Any, upstream: Any, width: Any
) -> None:
    """dv_j += sum_i p_ij g_i of some keys, over a whole tile of ROWS queries; `upstream` is g."""
    lanes()
    wide = width_of(gradient)
    whole = width // wide * wide
    for column in range(0, whole, wide):
        _gradient_columns(gradient, to + column, weights, left, keys, upstream, column, width)
    for row in range(ROWS if whole < width else 0):
        for j in range(keys):
            key_at, upstream_at = to + j * width, row * width
            weight = weights[row * STRIDE + left + j]
            for column in range(whole, width):
                gradient[key_at + column] += weight * upstream[upstream_at + column]


@inner
def _gradient_columns(
    gradient: Any, to: Any, weights: Any, left: Any, keys: Any, upstream: Any, at: Any, width: Any
) -> None:
    """One vector of columns of each key: g of all rows stays in registers while the keys pass."""
    lanes_inlined()
    upper, lower = load_four(upstream, at, width), load_four(upstream, at + HALF * width, width)
    for j in range(keys):
        key_at, weight_at = to + j * width, left + j
        # Two sums that do not wait for each other.
        sum_0 = _sum_products(load(gradient, key_at), weights, weight_at, STRIDE, upper)
        below = weight_at + HALF * STRIDE
        sum_1 = _sum_products(splat(gradient, 0), weights, below, STRIDE, lower)
        store(gradient, key_at, sum_0 + sum_1)


@inner
def weight_gradient(
    gradient: Any, left: Any, keys: Any, upstream: Any, width: Any, turned: Any, wide: Any, at: Any
) -> None:
    """dp_ij = g_i . v_j over all ROWS, for `keys` of them from column `left` on.

    Args:
        upstream: g.
        turned: the values, strip by strip, `wide` rows of STRIP keys each; those of these keys from `at` on.
    """
    lanes()
    zeros = splat(gradient, 0)
    for j in range(left, left + keys, width_of(gradient)):
        upper = lower = zeros, zeros, zeros, zeros
        start = at + (j - left) // STRIP * STRIP * wide + j % STRIP
        for column in range(width):
            numbers = load(turned, start + column * STRIP)
            upper = _add_products(upper, upstream, column, width, numbers)
            lower = _add_products(lower, upstream, column + HALF * width, width, numbers)
        store_four(gradient, j, STRIDE, upper)
        store_four(gradient, j + HALF * STRIDE, STRIDE, lower)


@inner
def turn_values(value: Any, keys: Any, width: Any, padded: Any, turned: Any, rows: Any) -> None:
    """The values of one entry, strip by strip, widths as rows of it, zeros beyond."""
    pitch, whole = padded + GAP, (keys + STRIP - 1) // STRIP * STRIP
    for first in range(0, whole, SIDE):
        few = max(0, min(SIDE, keys - first))
        for k in range(few):
            copy(rows, k * pitch, value, (first + k) * width, width)
        clear(rows, few * pitch, (SIDE - few) * pitch)
        turn(rows, padded, turned, first // STRIP * STRIP * padded + first % STRIP)
