"""Gradients through the hidden channels, of two queries against a block of keys.

    d score / d a_h = w_h (1 - tanh^2) = 4 w_h r_h (1 - r_h),   d score / d w_h = 1 - 2 r_h

With e the gradient of the scores, these sum  e r (1 - r)  for each query's and each key's channel,
and  e r  for the weight; the factors are put on by the caller.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from regard.attention.kernels.cpu.exponentials import BLOCK, STRIDE
from regard.attention.kernels.cpu.hidden import CAP, FAR, columns, reciprocal
from regard.attention.kernels.cpu.machine import inner, inner_sum, lanes, lanes_inlined

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


@inner_sum
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
) -> None:
    lanes_inlined()
    one, zero = e.dtype.type(1), e.dtype.type(0)
    e0, e1 = np.uint64(at_e), np.uint64(at_e + STRIDE)
    c0, c1 = np.uint64(at), np.uint64(at + STRIDE)
    c2, c3 = np.uint64(at + 2 * STRIDE), np.uint64(at + 3 * STRIDE)
    o0, o1 = np.uint64(to), np.uint64(to + STRIDE)
    o2, o3 = np.uint64(to + 2 * STRIDE), np.uint64(to + 3 * STRIDE)
    a0, a1, a2, a3 = a[row], a[row + 1], a[row + 2], a[row + 3]
    b0, b1, b2, b3 = a[below], a[below + 1], a[below + 2], a[below + 3]
    x0, x1, x2, x3 = zero, zero, zero, zero
    y0, y1, y2, y3 = zero, zero, zero, zero
    z0, z1, z2, z3 = zero, zero, zero, zero
    for j in range(np.uint64(n)):
        k0, k1, k2, k3 = spread[c0 + j], spread[c1 + j], spread[c2 + j], spread[c3 + j]
        s0, s1, s2, s3 = a0 * k0 + one, a1 * k1 + one, a2 * k2 + one, a3 * k3 + one
        t0, t1, t2, t3 = b0 * k0 + one, b1 * k1 + one, b2 * k2 + one, b3 * k3 + one
        s01, s23, t01, t23 = s0 * s1, s2 * s3, t0 * t1, t2 * t3
        s03, t03 = s01 * s23, t01 * t23
        both = one / (s03 * t03)
        i03, j03 = both * t03, both * s03
        i01, i23, j01, j23 = i03 * s23, i03 * s01, j03 * t23, j03 * t01
        r0, r1, r2, r3 = i01 * s1, i01 * s0, i23 * s3, i23 * s2
        q0, q1, q2, q3 = j01 * t1, j01 * t0, j23 * t3, j23 * t2
        ours, theirs = e[e0 + j], e[e1 + j]
        g0, g1, g2, g3 = r0 - r0 * r0, r1 - r1 * r1, r2 - r2 * r2, r3 - r3 * r3
        h0, h1, h2, h3 = q0 - q0 * q0, q1 - q1 * q1, q2 - q2 * q2, q3 - q3 * q3
        slope_c[o0 + j] += ours * g0 + theirs * h0
        slope_c[o1 + j] += ours * g1 + theirs * h1
        slope_c[o2 + j] += ours * g2 + theirs * h2
        slope_c[o3 + j] += ours * g3 + theirs * h3
        x0 += ours * g0
        x1 += ours * g1
        x2 += ours * g2
        x3 += ours * g3
        y0 += theirs * h0
        y1 += theirs * h1
        y2 += theirs * h2
        y3 += theirs * h3
        z0 += ours * r0 + theirs * q0
        z1 += ours * r1 + theirs * q1
        z2 += ours * r2 + theirs * q2
        z3 += ours * r3 + theirs * q3
    slope_a[row] += x0
    slope_a[row + 1] += x1
    slope_a[row + 2] += x2
    slope_a[row + 3] += x3
    slope_a[below] += y0
    slope_a[below + 1] += y1
    slope_a[below + 2] += y2
    slope_a[below + 3] += y3
    slope_w[g] += z0
    slope_w[g + 1] += z1
    slope_w[g + 2] += z2
    slope_w[g + 3] += z3


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
) -> None:
    """Add up the gradients of a tile against a block; rows in pairs, the last perhaps of zeros."""
    lanes()
    corner, n = block * padded, right - left
    for g in range(0, padded, FOUR):
        filled = False
        at, to = (corner + g) * STRIDE + left, g * STRIDE + left
        for row in range(0, rows, 2):
            one, two = row * padded + g, (row + 1) * padded + g
            at_e = row * STRIDE + left
            if product(a, one, two, top, corner + g) <= limit:
                four(e, at_e, spread, at, a, one, two, slope_c, to, n, slope_a, slope_w, g)
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
