"""Products with values: blending them by weights, and the two gradients of that."""

from typing import Any

import numpy as np

from regard.attention.kernels.additive.cpu.features import STRIDE, STRIP, turn
from regard.attention.kernels.additive.cpu.hidden import ROWS
from regard.loops.compiling import inner, lanes, lanes_inlined
from regard.loops.rows import clear, copy
from regard.loops.vectors import load, load_four, repeat, splat, store, store_four, width_of

HALF = 4  # rows of a tile whose sums or factors are one tuple of vectors


@inner
def blend(out: Any, weights: Any, left: Any, n: Any, value: Any, at: Any, width: Any) -> None:
    """out += weights x values, over n keys from column `left`; `at` is where their values start.

    For all ROWS of a tile; those beyond its queries hold anything.
    """
    lanes()
    step = width_of(out)
    whole = width // step * step
    for d in range(0, whole, step):
        _blend_columns(out, d, weights, left, n, value, at + d, width)
    for row in range(ROWS if whole < width else 0):
        for j in range(n):
            o, v, p = row * width, at + j * width, weights[row * STRIDE + left + j]
            for d in range(whole, width):
                out[o + d] += p * value[v + d]


@inner
def _blend_columns(
    out: Any, to: Any, weights: Any, left: Any, n: Any, value: Any, at: Any, width: Any
) -> None:
    lanes_inlined()
    x, y = load_four(out, to, width), load_four(out, to + HALF * width, width)
    for j in range(n):
        v = load(value, at + j * width)
        x = _add_products(x, weights, left + j, STRIDE, v)
        y = _add_products(y, weights, left + j + HALF * STRIDE, STRIDE, v)
    store_four(out, to, width, x)
    store_four(out, to + HALF * width, width, y)


@inner
def _add_products(x: Any, factors: Any, at: Any, apart: Any, v: Any) -> Any:
    """Four sums, to each of which a factor times v is added."""
    lanes_inlined()
    third = at + 2 * apart
    x0, x1 = x[0] + repeat(factors, at) * v, x[1] + repeat(factors, at + apart) * v
    x2, x3 = x[2] + repeat(factors, third) * v, x[3] + repeat(factors, third + apart) * v
    return x0, x1, x2, x3


@inner
def _sum_products(total: Any, factors: Any, at: Any, apart: Any, u: Any) -> Any:
    """One sum, to which four factors times four vectors are added."""
    lanes_inlined()
    third = at + 2 * apart
    total = total + repeat(factors, at) * u[0]
    total = total + repeat(factors, at + apart) * u[1]
    total = total + repeat(factors, third) * u[2]
    return total + repeat(factors, third + apart) * u[3]


@inner
def scale_row(out: Any, to: Any, width: Any, factor: Any) -> None:
    lanes()
    o = np.uint64(to)
    for d in range(np.uint64(width)):
        out[o + d] *= factor


@inner
def value_gradient(
    gradient: Any, to: Any, weights: Any, left: Any, n: Any, upstream: Any, width: Any
) -> None:
    """gradient of the values += weights^T x upstream, over a whole tile of ROWS queries."""
    lanes()
    step = width_of(gradient)
    whole = width // step * step
    for d in range(0, whole, step):
        _gradient_columns(gradient, to + d, weights, left, n, upstream, d, width)
    for row in range(ROWS if whole < width else 0):
        for j in range(n):
            o, u, p = to + j * width, row * width, weights[row * STRIDE + left + j]
            for d in range(whole, width):
                gradient[o + d] += p * upstream[u + d]


@inner
def _gradient_columns(
    gradient: Any, to: Any, weights: Any, left: Any, n: Any, upstream: Any, at: Any, width: Any
) -> None:
    lanes_inlined()
    u, w = load_four(upstream, at, width), load_four(upstream, at + HALF * width, width)
    for j in range(n):
        o = to + j * width
        first = _sum_products(load(gradient, o), weights, left + j, STRIDE, u)
        start = left + j + HALF * STRIDE
        store(gradient, o, first + _sum_products(splat(gradient, 0), weights, start, STRIDE, w))


@inner
def weight_gradient(
    gradient: Any, left: Any, n: Any, upstream: Any, width: Any, turned: Any, wide: Any, at: Any
) -> None:
    """gradient = upstream x values^T over all ROWS; the values turned, a strip at a time."""
    lanes()
    nothing = splat(gradient, 0)
    for j in range(left, left + n, width_of(gradient)):
        x = y = nothing, nothing, nothing, nothing
        start = at + (j - left) // STRIP * STRIP * wide + j % STRIP
        for d in range(width):
            v = load(turned, start + d * STRIP)
            x = _add_products(x, upstream, d, width, v)
            y = _add_products(y, upstream, d + HALF * width, width, v)
        store_four(gradient, j, STRIDE, x)
        store_four(gradient, j + HALF * STRIDE, STRIDE, y)


@inner
def turn_values(value: Any, keys: Any, width: Any, padded: Any, turned: Any, strip: Any) -> None:
    """The values of one entry, strip by strip, widths as rows of it, zeros beyond."""
    clear(strip, 0, STRIP * padded)
    for first in range(0, keys, STRIP):
        for k in range(STRIP):
            if first + k < keys:
                copy(strip, k * padded, value, (first + k) * width, width)
            else:
                clear(strip, k * padded, width)
        turn(strip, padded, turned, first * padded)
