"""Products with values: blending them by weights, and the two gradients of that."""

from __future__ import annotations

from typing import Any

import numpy as np

from regard.attention.kernels.additive.cpu.features import STRIDE, STRIP, turn
from regard.attention.kernels.additive.cpu.hidden import ROWS
from regard.loops.compiling import inner, lanes, lanes_inlined
from regard.loops.rows import clear, copy
from regard.loops.vectors import load, repeat, splat, store, width_of


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
    w1, w2, w3 = left + STRIDE, left + 2 * STRIDE, left + 3 * STRIDE
    w4, w5, w6, w7 = w3 + STRIDE, w3 + 2 * STRIDE, w3 + 3 * STRIDE, w3 + 4 * STRIDE
    x0, x1, x2, x3 = _rows(out, to, width)
    x4, x5, x6, x7 = _rows(out, to + 4 * width, width)
    for j in range(n):
        v = load(value, at + j * width)
        x0 = x0 + repeat(weights, left + j) * v
        x1 = x1 + repeat(weights, w1 + j) * v
        x2 = x2 + repeat(weights, w2 + j) * v
        x3 = x3 + repeat(weights, w3 + j) * v
        x4 = x4 + repeat(weights, w4 + j) * v
        x5 = x5 + repeat(weights, w5 + j) * v
        x6 = x6 + repeat(weights, w6 + j) * v
        x7 = x7 + repeat(weights, w7 + j) * v
    _write_rows(out, to, width, x0, x1, x2, x3)
    _write_rows(out, to + 4 * width, width, x4, x5, x6, x7)


@inner
def _rows(row: Any, at: Any, apart: Any) -> Any:
    """Vectors of four rows."""
    lanes_inlined()
    third = at + 2 * apart
    return load(row, at), load(row, at + apart), load(row, third), load(row, third + apart)


@inner
def _write_rows(row: Any, at: Any, apart: Any, x0: Any, x1: Any, x2: Any, x3: Any) -> None:
    lanes_inlined()
    third = at + 2 * apart
    store(row, at, x0)
    store(row, at + apart, x1)
    store(row, third, x2)
    store(row, third + apart, x3)


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
    w1, w2, w3 = left + STRIDE, left + 2 * STRIDE, left + 3 * STRIDE
    w4, w5, w6, w7 = w3 + STRIDE, w3 + 2 * STRIDE, w3 + 3 * STRIDE, w3 + 4 * STRIDE
    u0, u1, u2, u3 = _rows(upstream, at, width)
    u4, u5, u6, u7 = _rows(upstream, at + 4 * width, width)
    for j in range(n):
        o = to + j * width
        first = load(gradient, o) + repeat(weights, left + j) * u0
        first = first + repeat(weights, w1 + j) * u1
        first = first + repeat(weights, w2 + j) * u2
        first = first + repeat(weights, w3 + j) * u3
        last = repeat(weights, w4 + j) * u4
        last = last + repeat(weights, w5 + j) * u5
        last = last + repeat(weights, w6 + j) * u6
        last = last + repeat(weights, w7 + j) * u7
        store(gradient, o, first + last)


@inner
def weight_gradient(
    gradient: Any, left: Any, n: Any, upstream: Any, width: Any, turned: Any, wide: Any, at: Any
) -> None:
    """gradient = upstream x values^T over all ROWS; the values turned, a strip at a time."""
    lanes()
    u1, u2, u3 = width, 2 * width, 3 * width
    u4, u5, u6, u7 = 4 * width, 5 * width, 6 * width, 7 * width
    for j in range(left, left + n, width_of(gradient)):
        x0 = x1 = x2 = x3 = x4 = x5 = x6 = x7 = splat(gradient, 0)
        start = at + (j - left) // STRIP * STRIP * wide + j % STRIP
        for d in range(width):
            v = load(turned, start + d * STRIP)
            x0 = x0 + repeat(upstream, d) * v
            x1 = x1 + repeat(upstream, u1 + d) * v
            x2 = x2 + repeat(upstream, u2 + d) * v
            x3 = x3 + repeat(upstream, u3 + d) * v
            x4 = x4 + repeat(upstream, u4 + d) * v
            x5 = x5 + repeat(upstream, u5 + d) * v
            x6 = x6 + repeat(upstream, u6 + d) * v
            x7 = x7 + repeat(upstream, u7 + d) * v
        _write_rows(gradient, j, STRIDE, x0, x1, x2, x3)
        _write_rows(gradient, j + 4 * STRIDE, STRIDE, x4, x5, x6, x7)


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
