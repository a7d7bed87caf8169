"""Scores of a few queries against a block of keys: the sum over the hidden channels.

    score = sum_h w_h tanh(a_h + c_h) = sum_h w_h - 2 sum_h w_h r_h,   r_h = 1 / t_h,  t_h = 1 + A_h C_h

`sums` holds sum_h w_h r_h, a row of BLOCK keys for each query. Channels come in groups of GROUP.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from regard.attention.kernels.cpu.exponentials import BLOCK, GROUP, STRIDE, clear, exponential
from regard.attention.kernels.cpu.machine import inner, lanes, lanes_inlined

ROWS = 8  # queries in a tile
CAP = 2.0**60  # 1 / (1 + 2^60) is 0 beside 1 in float32 and float64
FAST, CAPPED, DIRECT = 0, 1, 2
FAR = 20.0  # tanh is 1 to float64's last place from here on


@inner
def way(a: Any, at: Any, top: Any, to: Any, scale: Any, limit: Any) -> Any:
    """How a group may be computed for one query: FAST if no product of all its t can overflow."""
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
    first = ((one + u0) * (one + u1)) * ((one + u2) * (one + u3))
    second = ((one + u4) * (one + u5)) * ((one + u6) * (one + u7))
    if first * second * scale <= limit:
        return FAST
    return CAPPED if (u0 + u1) + (u2 + u3) + ((u4 + u5) + (u6 + u7)) < np.inf else DIRECT


@inner
def eight(
    sums: Any, to: Any, spread: Any, at: Any, a: Any, row: Any, w: Any, g: Any, n: Any
) -> None:
    """sums += sum of w_h / t_h over eight channels, with one division:

    w1 / t1 + w2 / t2 = (w1 t2 + w2 t1) / (t1 t2), and again for pairs of pairs.
    """
    lanes_inlined()
    one = sums.dtype.type(1)
    s = np.uint64(to)
    c0 = np.uint64(at)
    c1, c2, c3 = np.uint64(at + STRIDE), np.uint64(at + 2 * STRIDE), np.uint64(at + 3 * STRIDE)
    c4, c5 = np.uint64(at + 4 * STRIDE), np.uint64(at + 5 * STRIDE)
    c6, c7 = np.uint64(at + 6 * STRIDE), np.uint64(at + 7 * STRIDE)
    a0, a1, a2, a3 = a[row], a[row + 1], a[row + 2], a[row + 3]
    a4, a5, a6, a7 = a[row + 4], a[row + 5], a[row + 6], a[row + 7]
    w0, w1, w2, w3 = w[g], w[g + 1], w[g + 2], w[g + 3]
    w4, w5, w6, w7 = w[g + 4], w[g + 5], w[g + 6], w[g + 7]
    for j in range(np.uint64(n)):
        t0, t1 = a0 * spread[c0 + j] + one, a1 * spread[c1 + j] + one
        t2, t3 = a2 * spread[c2 + j] + one, a3 * spread[c3 + j] + one
        t4, t5 = a4 * spread[c4 + j] + one, a5 * spread[c5 + j] + one
        t6, t7 = a6 * spread[c6 + j] + one, a7 * spread[c7 + j] + one
        d01, d23, d45, d67 = t0 * t1, t2 * t3, t4 * t5, t6 * t7
        n01, n23 = w0 * t1 + w1 * t0, w2 * t3 + w3 * t2
        n45, n67 = w4 * t5 + w5 * t4, w6 * t7 + w7 * t6
        d03, d47 = d01 * d23, d45 * d67
        n03, n47 = n01 * d23 + n23 * d01, n45 * d67 + n67 * d45
        sums[s + j] += (n03 * d47 + n47 * d03) / (d03 * d47)


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
    scales: Any,
    limit: Any,
    block: Any,
    left: Any,
    right: Any,
    raw: Any,
) -> None:
    """Fill `sums` for the first `rows` queries of a tile, from column `left` of a block to `right`.

    a: A of the tile, ROWS x padded; plain: the features a themselves, the same shape.
    """
    lanes()
    corner, count = block * padded, right - left
    for row in range(rows):
        clear(sums, row * STRIDE + left, count)
    for g in range(0, padded, GROUP):
        filled = False
        for row in range(rows):
            at, to = row * padded + g, row * STRIDE + left
            chosen = way(a, at, top, corner + g, scales[g // GROUP], limit)
            where = (corner + g) * STRIDE + left
            if chosen == FAST:
                eight(sums, to, spread, where, a, at, w, g, count)
            elif chosen == CAPPED:
                capped(sums, to, spread, where, a, at, w, g, count)
            else:
                if not filled:
                    columns(features, keys, hidden, block * BLOCK, g, GROUP, raw)
                    filled = True
                direct(sums, to, raw, left, plain, at, w, g, count)
