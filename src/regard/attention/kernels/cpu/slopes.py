"""Gradients through the hidden channels, of two queries against a block of keys.

    d score / d a_h = w_h (1 - tanh^2) = 4 w_h r_h (1 - r_h),   d score / d w_h = 1 - 2 r_h

With e the gradient of the scores, these sum  e r (1 - r)  for each query's and each key's channel,
and  e r  for the weight; the factors are put on by the caller.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from regard.attention.kernels.cpu.exponentials import BLOCK, STRIDE
from regard.attention.kernels.cpu.hidden import CAP, FAR, ROWS, columns, reciprocal
from regard.attention.kernels.cpu.machine import inner, inner_sum, lanes, lanes_inlined
from regard.attention.kernels.cpu.vectors import everywhere, fused, load, store, total, width_of

FOUR = 4  # channels at once: with two queries they share one division by eight


@inner
def product(a: Any, at: Any, below: Any, top: Any, to: Any) -> Any:
    """The largest product of t that eight pairs may have."""
    one = a.dtype.type(1)
    i, k, j = np.uint64(at), np.uint64(below), np.uint64(to)
    s0, s1, s2, s3 = top[j], top[j + np.uint64(1)], top[j + np.uint64(2)], top[j + np.uint64(3)]
    t0, t1 = one + a[i] * s0, one + a[i + np.uint64(1)] * s1
    t2, t3 = one + a[i + np.uint64(2)] * s2, one + a[i + np.uint64(3)] * s3
    t4, t5 = one + a[k] * s0, one + a[k + np.uint64(1)] * s1
    t6, t7 = one + a[k + np.uint64(2)] * s2, one + a[k + np.uint64(3)] * s3
    return ((t0 * t1) * (t2 * t3)) * ((t4 * t5) * (t6 * t7))


@inner
def four(
    e: Any,
    at_e: Any,
    spread: Any,
    at: Any,
    a: Any,
    row: Any,
    below: Any,
    slope_c: Any,
    to: Any,
    n: Any,
    slope_a: Any,
    slope_w: Any,
    g: Any,
    room: Any,
) -> None:
    """Two loops: waiting for the division in one would leave the other instructions no place."""
    lanes_inlined()
    at_f = at_e + STRIDE
    c1, c2, c3 = at + STRIDE, at + 2 * STRIDE, at + 3 * STRIDE
    o1, o2, o3 = to + STRIDE, to + 2 * STRIDE, to + 3 * STRIDE
    one, nothing = everywhere(e, 1), everywhere(e, 0)
    a0, a1 = everywhere(a, a[row]), everywhere(a, a[row + 1])
    a2, a3 = everywhere(a, a[row + 2]), everywhere(a, a[row + 3])
    b0, b1 = everywhere(a, a[below]), everywhere(a, a[below + 1])
    b2, b3 = everywhere(a, a[below + 2]), everywhere(a, a[below + 3])
    x0 = x1 = x2 = x3 = y0 = y1 = y2 = y3 = z0 = z1 = z2 = z3 = nothing
    for j in range(0, n, width_of(e)):
        k0, k1 = load(spread, at + j), load(spread, c1 + j)
        k2, k3 = load(spread, c2 + j), load(spread, c3 + j)
        s01, t01 = (a0 * k0 + one) * (a1 * k1 + one), (b0 * k0 + one) * (b1 * k1 + one)
        s23, t23 = (a2 * k2 + one) * (a3 * k3 + one), (b2 * k2 + one) * (b3 * k3 + one)
        store(room, j, one / ((s01 * s23) * (t01 * t23)))
    for j in range(0, n, width_of(e)):
        k0, k1 = load(spread, at + j), load(spread, c1 + j)
        k2, k3 = load(spread, c2 + j), load(spread, c3 + j)
        s0, s1, t0, t1 = a0 * k0 + one, a1 * k1 + one, b0 * k0 + one, b1 * k1 + one
        s2, s3, t2, t3 = a2 * k2 + one, a3 * k3 + one, b2 * k2 + one, b3 * k3 + one
        s01, s23, t01, t23 = s0 * s1, s2 * s3, t0 * t1, t2 * t3
        both, ours, theirs = load(room, j), load(e, at_e + j), load(e, at_f + j)
        i03, j03 = both * (t01 * t23), both * (s01 * s23)
        i, k = i03 * s23, j03 * t23
        r, q = i * s1, k * t1
        f, h = r - r * r, q - q * q
        x0, y0, z0 = fused(ours, f, x0), fused(theirs, h, y0), fused(ours, r, fused(theirs, q, z0))
        store(slope_c, to + j, fused(ours, f, fused(theirs, h, load(slope_c, to + j))))
        r, q = i * s0, k * t0
        f, h = r - r * r, q - q * q
        x1, y1, z1 = fused(ours, f, x1), fused(theirs, h, y1), fused(ours, r, fused(theirs, q, z1))
        store(slope_c, o1 + j, fused(ours, f, fused(theirs, h, load(slope_c, o1 + j))))
        i, k = i03 * s01, j03 * t01
        r, q = i * s3, k * t3
        f, h = r - r * r, q - q * q
        x2, y2, z2 = fused(ours, f, x2), fused(theirs, h, y2), fused(ours, r, fused(theirs, q, z2))
        store(slope_c, o2 + j, fused(ours, f, fused(theirs, h, load(slope_c, o2 + j))))
        r, q = i * s2, k * t2
        f, h = r - r * r, q - q * q
        x3, y3, z3 = fused(ours, f, x3), fused(theirs, h, y3), fused(ours, r, fused(theirs, q, z3))
        store(slope_c, o3 + j, fused(ours, f, fused(theirs, h, load(slope_c, o3 + j))))
    slope_a[row] += total(x0)
    slope_a[row + 1] += total(x1)
    slope_a[row + 2] += total(x2)
    slope_a[row + 3] += total(x3)
    slope_a[below] += total(y0)
    slope_a[below + 1] += total(y1)
    slope_a[below + 2] += total(y2)
    slope_a[below + 3] += total(y3)
    slope_w[g] += total(z0)
    slope_w[g + 1] += total(z1)
    slope_w[g + 2] += total(z2)
    slope_w[g + 3] += total(z3)


@inner_sum
def capped_one(
    e: Any, at_e: Any, spread: Any, at: Any, power: Any, slope_c: Any, to: Any, n: Any
) -> Any:
    """One query and channel, A C no larger than CAP: the sums for a and for w."""
    lanes()
    one, cap = e.dtype.type(1), e.dtype.type(CAP)
    for_a = for_w = e.dtype.type(0)
    s, c, o = np.uint64(at_e), np.uint64(at), np.uint64(to)
    for j in range(np.uint64(n)):
        u = power * spread[c + j]
        r = one / ((cap if u > cap else u) + one)
        eg = e[s + j] * (r - r * r)
        slope_c[o + j] += eg
        for_a += eg
        for_w += e[s + j] * r
    return for_a, for_w


@inner_sum
def direct_one(
    e: Any, at_e: Any, raw: Any, at: Any, plain: Any, slope_c: Any, to: Any, n: Any
) -> Any:
    """The same from the features themselves."""
    lanes()
    one, far = e.dtype.type(1), e.dtype.type(FAR)
    for_a = for_w = e.dtype.type(0)
    s, c, o = np.uint64(at_e), np.uint64(at), np.uint64(to)
    for j in range(np.uint64(n)):
        r = reciprocal(plain + raw[c + j], one, far)
        eg = e[s + j] * (r - r * r)
        slope_c[o + j] += eg
        for_a += eg
        for_w += e[s + j] * r
    return for_a, for_w


@inner
def slopes_of_channels(
    e: Any,
    rows: Any,
    a: Any,
    plain: Any,
    spread: Any,
    top: Any,
    features: Any,
    keys: Any,
    hidden: Any,
    padded: Any,
    limit: Any,
    block: Any,
    left: Any,
    right: Any,
    raw: Any,
    slope_a: Any,
    slope_c: Any,
    slope_w: Any,
    room: Any,
) -> None:
    """Add up the gradients of a tile against a block; rows in pairs, the last perhaps of zeros."""
    lanes()
    corner, n = block * padded, right - left
    most = ROWS * padded
    for g in range(0, padded, FOUR):
        filled = False
        safe = product(a, most + g, most + g, top, corner + g) <= limit
        at, to = (corner + g) * STRIDE + left, g * STRIDE + left
        for row in range(0, rows, 2):
            one, two = row * padded + g, (row + 1) * padded + g
            at_e = row * STRIDE + left
            if safe or product(a, one, two, top, corner + g) <= limit:
                four(
                    e,
                    at_e,
                    spread,
                    at,
                    a,
                    one,
                    two,
                    slope_c,
                    to,
                    n,
                    slope_a,
                    slope_w,
                    g,
                    room,
                )
                continue
            if not filled:
                columns(features, keys, hidden, block * BLOCK, g, FOUR, raw)
                filled = True
            for pair in range(2):
                for k in range(FOUR):
                    i, skip = one + pair * padded + k, k * STRIDE
                    if a[i] * top[corner + g + k] < np.inf:
                        for_a, for_w = capped_one(
                            e, at_e + pair * STRIDE, spread, at + skip, a[i], slope_c, to + skip, n
                        )
                    else:
                        for_a, for_w = direct_one(
                            e,
                            at_e + pair * STRIDE,
                            raw,
                            left + skip,
                            plain[i],
                            slope_c,
                            to + skip,
                            n,
                        )
                    slope_a[i] += for_a
                    slope_w[g + k] += for_w
