"""Products with values: blending them by weights, and the two gradients of that."""

from __future__ import annotations

from typing import Any

import numpy as np

from regard.attention.kernels.cpu.exponentials import BLOCK, STRIDE, STRIP, clear, turn
from regard.attention.kernels.cpu.machine import inner, lanes, lanes_inlined


@inner
def blend(
    out: Any, weights: Any, rows: Any, left: Any, n: Any, value: Any, at: Any, width: Any
) -> None:
    """out += weights x values, over n keys from column `left`; `at` is where their values start."""
    lanes()
    whole = n // 8 * 8
    for j in range(0, whole, 8):
        for row in range(rows):
            _eight_values(
                out, row * width, weights, row * STRIDE + left + j, value, at + j * width, width
            )
    for j in range(whole, n):
        for row in range(rows):
            _one_value(
                out, row * width, weights[row * STRIDE + left + j], value, at + j * width, width
            )


@inner
def _eight_values(
    out: Any, to: Any, weights: Any, of: Any, value: Any, at: Any, width: Any
) -> None:
    lanes_inlined()
    o, v0 = np.uint64(to), np.uint64(at)
    v1, v2, v3 = np.uint64(at + width), np.uint64(at + 2 * width), np.uint64(at + 3 * width)
    v4, v5 = np.uint64(at + 4 * width), np.uint64(at + 5 * width)
    v6, v7 = np.uint64(at + 6 * width), np.uint64(at + 7 * width)
    p0, p1, p2, p3 = weights[of], weights[of + 1], weights[of + 2], weights[of + 3]
    p4, p5, p6, p7 = weights[of + 4], weights[of + 5], weights[of + 6], weights[of + 7]
    for d in range(np.uint64(width)):
        first = p0 * value[v0 + d] + p1 * value[v1 + d] + (p2 * value[v2 + d] + p3 * value[v3 + d])
        last = p4 * value[v4 + d] + p5 * value[v5 + d] + (p6 * value[v6 + d] + p7 * value[v7 + d])
        out[o + d] += first + last


@inner
def _one_value(out: Any, to: Any, p: Any, value: Any, at: Any, width: Any) -> None:
    lanes_inlined()
    o, v = np.uint64(to), np.uint64(at)
    for d in range(np.uint64(width)):
        out[o + d] += p * value[v + d]


@inner
def scale_row(out: Any, to: Any, width: Any, factor: Any) -> None:
    lanes()
    o = np.uint64(to)
    for d in range(np.uint64(width)):
        out[o + d] *= factor


@inner
def value_gradient(
    slope: Any, to: Any, weights: Any, left: Any, n: Any, upstream: Any, width: Any
) -> None:
    """slope of the values += weights^T x upstream, over a whole tile of ROWS queries."""
    lanes()
    for j in range(n):
        _eight_queries(slope, to + j * width, weights, left + j, upstream, width)


@inner
def _eight_queries(slope: Any, to: Any, weights: Any, of: Any, upstream: Any, width: Any) -> None:
    lanes_inlined()
    o = np.uint64(to)
    u1, u2, u3 = np.uint64(width), np.uint64(2 * width), np.uint64(3 * width)
    u4, u5 = np.uint64(4 * width), np.uint64(5 * width)
    u6, u7 = np.uint64(6 * width), np.uint64(7 * width)
    p0, p1 = weights[of], weights[of + STRIDE]
    p2, p3 = weights[of + 2 * STRIDE], weights[of + 3 * STRIDE]
    p4, p5 = weights[of + 4 * STRIDE], weights[of + 5 * STRIDE]
    p6, p7 = weights[of + 6 * STRIDE], weights[of + 7 * STRIDE]
    for d in range(np.uint64(width)):
        first = (p0 * upstream[d] + p1 * upstream[u1 + d]) + (
            p2 * upstream[u2 + d] + p3 * upstream[u3 + d]
        )
        last = (p4 * upstream[u4 + d] + p5 * upstream[u5 + d]) + (
            p6 * upstream[u6 + d] + p7 * upstream[u7 + d]
        )
        slope[o + d] += first + last


@inner
def weight_gradient(
    slope: Any,
    rows: Any,
    left: Any,
    n: Any,
    upstream: Any,
    width: Any,
    padded: Any,
    turned: Any,
    at: Any,
) -> None:
    """slope = upstream x values^T; the values turned, widths as rows of BLOCK keys, padded to 8."""
    lanes()
    for row in range(rows):
        to = row * STRIDE + left
        clear(slope, to, n)
        for d in range(0, padded, 8):
            _eight_widths(
                slope, to, n, upstream, row * width + d, width - d, turned, at + d * STRIDE + left
            )


@inner
def _eight_widths(
    slope: Any, to: Any, n: Any, upstream: Any, of: Any, count: Any, turned: Any, at: Any
) -> None:
    lanes_inlined()
    zero = slope.dtype.type(0)
    s, v0 = np.uint64(to), np.uint64(at)
    v1, v2, v3 = np.uint64(at + STRIDE), np.uint64(at + 2 * STRIDE), np.uint64(at + 3 * STRIDE)
    v4, v5 = np.uint64(at + 4 * STRIDE), np.uint64(at + 5 * STRIDE)
    v6, v7 = np.uint64(at + 6 * STRIDE), np.uint64(at + 7 * STRIDE)
    u0 = upstream[of]
    u1 = upstream[of + 1] if count > 1 else zero
    u2 = upstream[of + 2] if count > 2 else zero
    u3 = upstream[of + 3] if count > 3 else zero
    u4 = upstream[of + 4] if count > 4 else zero
    u5 = upstream[of + 5] if count > 5 else zero
    u6 = upstream[of + 6] if count > 6 else zero
    u7 = upstream[of + 7] if count > 7 else zero
    for j in range(np.uint64(n)):
        first = (u0 * turned[v0 + j] + u1 * turned[v1 + j]) + (
            u2 * turned[v2 + j] + u3 * turned[v3 + j]
        )
        last = (u4 * turned[v4 + j] + u5 * turned[v5 + j]) + (
            u6 * turned[v6 + j] + u7 * turned[v7 + j]
        )
        slope[s + j] += first + last


@inner
def turn_values(value: Any, keys: Any, width: Any, padded: Any, turned: Any, strip: Any) -> None:
    """The values of one entry, widths as rows of BLOCK keys, zeros beyond."""
    clear(strip, 0, STRIP * padded)
    for block in range((keys + BLOCK - 1) // BLOCK):
        first = block * BLOCK
        count = min(BLOCK, keys - first)
        for start in range(0, count, STRIP):
            for k in range(STRIP):
                for d in range(width):
                    inside = start + k < count
                    strip[k * padded + d] = (
                        value[(first + start + k) * width + d] if inside else 0.0
                    )
            turn(strip, padded, turned, block * padded * STRIDE + start)
