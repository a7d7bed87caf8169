"""Scores of a few queries against a block of keys: the sum over the hidden channels.

    score = sum_h w_h tanh(a_h + c_h) = sum_h w_h - 2 sum_h w_h r_h,   r_h = 1 / t_h,  t_h = 1 + A_h C_h

`sums` holds sum_h w_h r_h, a row of BLOCK keys for each query. Channels come in groups of GROUP.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from regard.attention.kernels.cpu.exponentials import BLOCK, STRIDE, clear, exponential
from regard.attention.kernels.cpu.machine import inner, lanes, lanes_inlined
from regard.attention.kernels.cpu.pairs import GROUP
from regard.attention.kernels.cpu.vectors import everywhere, load, store, width_of

ROWS = 8  # queries in a tile
CAP = 2.0**60  # 1 / (1 + 2^60) is 0 beside 1 in float32 and float64
FAST, CAPPED, DIRECT = 0, 1, 2
FAR = 20.0  # tanh is 1 to float64's last place from here on


@inner
def way(a: Any, at: Any, top: Any, to: Any, bounds: Any, half: Any, limit: Any) -> Any:
    """How a group may be computed for one query: FAST if no product of its s and t can overflow."""
    one = a.dtype.type(1)
    i, j = np.uint64(at), np.uint64(to)
    u0, u1 = a[i] * top[j], a[i + np.uint64(1)] * top[j + np.uint64(1)]
    u2, u3 = (
        a[i + np.uint64(2)] * top[j + np.uint64(2)],
        a[i + np.uint64(3)] * top[j + np.uint64(3)],
    )
    u4, u5 = (
        a[i + np.uint64(4)] * top[j + np.uint64(4)],
        a[i + np.uint64(5)] * top[j + np.uint64(5)],
    )
    u6, u7 = (
        a[i + np.uint64(6)] * top[j + np.uint64(6)],
        a[i + np.uint64(7)] * top[j + np.uint64(7)],
    )
    first = ((one + u0) * (one + u1)) * ((one + u2) * (one + u3)) * bounds[half]
    second = ((one + u4) * (one + u5)) * ((one + u6) * (one + u7)) * bounds[half + 1]
    if first <= limit and second <= limit and first * second <= limit:
        return FAST
    return CAPPED if (u0 + u1) + (u2 + u3) + ((u4 + u5) + (u6 + u7)) < np.inf else DIRECT


@inner
def eight(
    sums: Any,
    to: Any,
    spread: Any,
    at: Any,
    a: Any,
    row: Any,
    w: Any,
    order: Any,
    inverse: Any,
    g: Any,
    n: Any,
) -> None:
    """sums += sum of w_h / t_h over eight channels, with one division:

    w1 / t1 + w2 / t2 = (t2 + w2 s) / (s t2)  with  s = t1 / w1,  and then for pairs of pairs
    n1 / d1 + n2 / d2 = (n1 d2 + n2 d1) / (d1 d2)
    """
    lanes_inlined()
    p = g // 2
    e0, f0, e1, f1 = order[g], order[g + 1], order[g + 2], order[g + 3]
    e2, f2, e3, f3 = order[g + 4], order[g + 5], order[g + 6], order[g + 7]
    i0, i1, i2, i3 = inverse[p], inverse[p + 1], inverse[p + 2], inverse[p + 3]
    c0, c1, c2, c3 = at + e0 * STRIDE, at + e1 * STRIDE, at + e2 * STRIDE, at + e3 * STRIDE
    d0, d1, d2, d3 = at + f0 * STRIDE, at + f1 * STRIDE, at + f2 * STRIDE, at + f3 * STRIDE
    one = everywhere(a, 1)
    u0, u1, u2, u3 = everywhere(a, i0), everywhere(a, i1), everywhere(a, i2), everywhere(a, i3)
    a0, a1 = everywhere(a, a[row + e0] * i0), everywhere(a, a[row + e1] * i1)
    a2, a3 = everywhere(a, a[row + e2] * i2), everywhere(a, a[row + e3] * i3)
    b0, b1 = everywhere(a, a[row + f0]), everywhere(a, a[row + f1])
    b2, b3 = everywhere(a, a[row + f2]), everywhere(a, a[row + f3])
    w0, w1 = everywhere(a, w[g + f0]), everywhere(a, w[g + f1])
    w2, w3 = everywhere(a, w[g + f2]), everywhere(a, w[g + f3])
    for j in range(0, n, width_of(a)):
        s0, t0 = a0 * load(spread, c0 + j) + u0, b0 * load(spread, d0 + j) + one
        s1, t1 = a1 * load(spread, c1 + j) + u1, b1 * load(spread, d1 + j) + one
        n0, m0, n1, m1 = w0 * s0 + t0, s0 * t0, w1 * s1 + t1, s1 * t1
        n01, m01 = n0 * m1 + n1 * m0, m0 * m1
        s2, t2 = a2 * load(spread, c2 + j) + u2, b2 * load(spread, d2 + j) + one
        s3, t3 = a3 * load(spread, c3 + j) + u3, b3 * load(spread, d3 + j) + one
        n2, m2, n3, m3 = w2 * s2 + t2, s2 * t2, w3 * s3 + t3, s3 * t3
        n23, m23 = n2 * m3 + n3 * m2, m2 * m3
        part = (n01 * m23 + n23 * m01) / (m01 * m23)
        store(sums, to + j, load(sums, to + j) + part)


@inner
def capped(
    sums: Any, to: Any, spread: Any, at: Any, a: Any, row: Any, w: Any, g: Any, n: Any
) -> None:
    """The same, two channels a division, A C no larger than CAP."""
    lanes()
    one, cap = sums.dtype.type(1), sums.dtype.type(CAP)
    s = np.uint64(to)
    for k in range(0, GROUP, 2):
        c0, c1 = np.uint64(at + k * STRIDE), np.uint64(at + (k + 1) * STRIDE)
        a0, a1, w0, w1 = a[row + k], a[row + k + 1], w[g + k], w[g + k + 1]
        for j in range(np.uint64(n)):
            u0, u1 = a0 * spread[c0 + j], a1 * spread[c1 + j]
            t0, t1 = (cap if u0 > cap else u0) + one, (cap if u1 > cap else u1) + one
            sums[s + j] += (w0 * t1 + w1 * t0) / (t0 * t1)


@inner
def direct(sums: Any, to: Any, raw: Any, at: Any, a: Any, row: Any, w: Any, g: Any, n: Any) -> None:
    """The same from the features themselves, r = 1 / (1 + e^(2 (a + c)))."""
    lanes()
    one, far = sums.dtype.type(1), sums.dtype.type(FAR)
    s = np.uint64(to)
    for k in range(GROUP):
        c0 = np.uint64(at + k * STRIDE)
        a0, w0 = a[row + k], w[g + k]
        for j in range(np.uint64(n)):
            sums[s + j] += w0 * reciprocal(a0 + raw[c0 + j], one, far)


@inner
def reciprocal(x: Any, one: Any, far: Any) -> Any:
    """1 / (1 + e^(2x)); a NaN stays one."""
    x = far if x > far else x
    x = -far if x < -far else x
    return one / (one + exponential(x + x))


@inner
def columns(
    features: Any, keys: Any, hidden: Any, first: Any, g: Any, count: Any, raw: Any
) -> None:
    """`count` channels of a block of keys as rows; 0 beyond the keys and the channels."""
    for k in range(count):
        for j in range(BLOCK):
            inside = first + j < keys and g + k < hidden
            raw[k * STRIDE + j] = features[(first + j) * hidden + g + k] if inside else 0.0


@inner
def sum_channels(
    sums: Any,
    rows: Any,
    a: Any,
    plain: Any,
    spread: Any,
    top: Any,
    features: Any,
    keys: Any,
    hidden: Any,
    padded: Any,
    w: Any,
    order: Any,
    inverse: Any,
    bounds: Any,
    limit: Any,
    block: Any,
    left: Any,
    right: Any,
    raw: Any,
) -> None:
    """Fill `sums` for the first `rows` queries of a tile, from column `left` of a block to `right`.

    a: A of the tile, ROWS x padded, and one more row of the largest of each channel; plain: the
    features a themselves. What is safe for the largest is safe for all.
    """
    lanes()
    corner, count = block * padded, right - left
    for row in range(rows):
        clear(sums, row * STRIDE + left, count)
    for g in range(0, padded, GROUP):
        filled, where, half = False, (corner + g) * STRIDE + left, g // 4
        all_rows = way(a, ROWS * padded + g, top, corner + g, bounds, half, limit)
        for row in range(rows):
            at, to = row * padded + g, row * STRIDE + left
            chosen = all_rows
            if chosen != FAST:
                chosen = way(a, at, top, corner + g, bounds, half, limit)
            if chosen == FAST:
                eight(sums, to, spread, where, a, at, w, order, inverse, g, count)
            elif chosen == CAPPED:
                capped(sums, to, spread, where, a, at, w, g, count)
            else:
                if not filled:
                    columns(features, keys, hidden, block * BLOCK, g, GROUP, raw)
                    filled = True
                direct(sums, to, raw, left, plain, at, w, g, count)
