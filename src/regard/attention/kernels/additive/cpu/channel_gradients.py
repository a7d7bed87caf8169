"""Gradients through the hidden channels, of a tile of queries against a block of keys.

    d score / d a_h = w_h (1 - tanh^2) = 4 w_h r_h (1 - r_h),   d score / d w_h = 1 - 2 r_h

With e the gradient of the scores, these sum  e r (1 - r)  for each query's and each key's channel,
and  e r  for the weight; the factors are put on by the caller.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from regard.attention.kernels.additive.cpu.features import BLOCK, STRIDE, STRIP
from regard.attention.kernels.additive.cpu.hidden import CAP, FAR, ROWS, columns, reciprocal
from regard.loops.compiling import inner, inner_sum, lanes
from regard.loops.rows import clear
from regard.loops.vectors import fused, load, repeat, splat, store, total, width_of

FOUR = 4  # channels that share one division
MOST = 16  # numbers in a vector
ROOM = (ROWS + 1) * FOUR * MOST  # sums of a tile and four channels, lane by lane


@inner
def product(a: Any, at: Any, top: Any, to: Any) -> Any:
    """The largest product of t that these four channels of a strip may have."""
    one = a.dtype.type(1)
    t0, t1 = one + a[at] * top[to], one + a[at + 1] * top[to + 1]
    t2, t3 = one + a[at + 2] * top[to + 2], one + a[at + 3] * top[to + 3]
    return (t0 * t1) * (t2 * t3)


@inner
def four(
    e: Any,
    at_e: Any,
    first: Any,
    last: Any,
    spread: Any,
    at: Any,
    a: Any,
    padded: Any,
    gradient_c: Any,
    to: Any,
    room: Any,
) -> None:
    """Four channels of a strip, queries `first` to `last` of a tile; `a` from `padded` on, A of the first.

    1/t_0 = (t_1 / (t_0 t_1)) and so on from 1 / (t_0 t_1 t_2 t_3). The keys' sums stay in registers
    while the queries pass; the queries' wait in `room`, and behind them those of the weights.
    """
    lanes()
    one, wide = splat(e, 1), width_of(e)
    end = ROWS * FOUR * wide
    for j in range(0, STRIP, wide):
        k0, k1 = load(spread, at + j), load(spread, at + STRIP + j)
        k2, k3 = load(spread, at + 2 * STRIP + j), load(spread, at + 3 * STRIP + j)
        y0, y1 = load(gradient_c, to + j), load(gradient_c, to + STRIP + j)
        y2, y3 = load(gradient_c, to + 2 * STRIP + j), load(gradient_c, to + 3 * STRIP + j)
        z0, z1 = load(room, end), load(room, end + wide)
        z2, z3 = load(room, end + 2 * wide), load(room, end + 3 * wide)
        for row in range(first, last):
            of, x = row * padded, row * FOUR * wide
            given = load(e, at_e + row * STRIDE + j)
            t0, t1 = repeat(a, of) * k0 + one, repeat(a, of + 1) * k1 + one
            t2, t3 = repeat(a, of + 2) * k2 + one, repeat(a, of + 3) * k3 + one
            t01, t23 = t0 * t1, t2 * t3
            both = one / (t01 * t23)
            i01, i23 = both * t23, both * t01
            r0, r1, r2, r3 = i01 * t1, i01 * t0, i23 * t3, i23 * t2
            f0, f1, f2, f3 = r0 - r0 * r0, r1 - r1 * r1, r2 - r2 * r2, r3 - r3 * r3
            store(room, x, fused(given, f0, load(room, x)))
            store(room, x + wide, fused(given, f1, load(room, x + wide)))
            store(room, x + 2 * wide, fused(given, f2, load(room, x + 2 * wide)))
            store(room, x + 3 * wide, fused(given, f3, load(room, x + 3 * wide)))
            y0, y1, y2, y3 = (
                fused(given, f0, y0),
                fused(given, f1, y1),
                fused(given, f2, y2),
                fused(given, f3, y3),
            )
            z0, z1, z2, z3 = (
                fused(given, r0, z0),
                fused(given, r1, z1),
                fused(given, r2, z2),
                fused(given, r3, z3),
            )
        store(gradient_c, to + j, y0)
        store(gradient_c, to + STRIP + j, y1)
        store(gradient_c, to + 2 * STRIP + j, y2)
        store(gradient_c, to + 3 * STRIP + j, y3)
        store(room, end, z0)
        store(room, end + wide, z1)
        store(room, end + 2 * wide, z2)
        store(room, end + 3 * wide, z3)


@inner_sum
def capped_one(
    e: Any, at_e: Any, spread: Any, at: Any, power: Any, gradient_c: Any, to: Any, n: Any
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
        gradient_c[o + j] += eg
        for_a += eg
        for_w += e[s + j] * r
    return for_a, for_w


@inner_sum
def direct_one(
    e: Any, at_e: Any, raw: Any, at: Any, plain: Any, gradient_c: Any, to: Any, n: Any
) -> Any:
    """The same from the features themselves."""
    lanes()
    one, far = e.dtype.type(1), e.dtype.type(FAR)
    for_a = for_w = e.dtype.type(0)
    s, c, o = np.uint64(at_e), np.uint64(at), np.uint64(to)
    for j in range(np.uint64(n)):
        r = reciprocal(plain + raw[c + j], one, far)
        eg = e[s + j] * (r - r * r)
        gradient_c[o + j] += eg
        for_a += eg
        for_w += e[s + j] * r
    return for_a, for_w


@inner
def one_by_one(
    e: Any,
    at_e: Any,
    a: Any,
    plain: Any,
    i: Any,
    spread: Any,
    at: Any,
    top: Any,
    corner: Any,
    raw: Any,
    gradient_c: Any,
    to: Any,
    gradient_a: Any,
    gradient_w: Any,
    g: Any,
) -> None:
    """Four channels of one query and a strip where a product might overflow."""
    for k in range(FOUR):
        skip = k * STRIP
        if a[i + k] * top[corner + k] < np.inf:
            for_a, for_w = capped_one(
                e, at_e, spread, at + skip, a[i + k], gradient_c, to + skip, STRIP
            )
        else:
            for_a, for_w = direct_one(
                e, at_e, raw, skip, plain[i + k], gradient_c, to + skip, STRIP
            )
        gradient_a[i + k] += for_a
        gradient_w[g + k] += for_w


@inner
def channel_gradients(
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
    gradient_a: Any,
    gradient_c: Any,
    gradient_w: Any,
    room: Any,
) -> None:
    """Add to the gradients of A's, C's and the weights' channels, from column `left` to `right`.

    gradient_c holds a block, strip by strip. If the largest A of a tile is safe, all of them are.
    """
    lanes()
    wide = width_of(e)
    for g in range(0, padded, FOUR):
        clear(room, 0, ROOM)
        rest = a[g:]
        for column in range(left, right, STRIP):
            strip = (block * BLOCK + column) // STRIP
            corner, to = strip * padded + g, column * padded + g * STRIP
            at = corner * STRIP
            if product(a, ROWS * padded + g, top, corner) <= limit:
                four(e, column, 0, rows, spread, at, rest, padded, gradient_c, to, room)
                continue
            columns(features, keys, hidden, strip * STRIP, g, FOUR, raw)
            for row in range(rows):
                i, at_e = row * padded + g, row * STRIDE + column
                if product(a, i, top, corner) <= limit:
                    four(e, column, row, row + 1, spread, at, rest, padded, gradient_c, to, room)
                else:
                    one_by_one(
                        e,
                        at_e,
                        a,
                        plain,
                        i,
                        spread,
                        at,
                        top,
                        corner,
                        raw,
                        gradient_c,
                        to,
                        gradient_a,
                        gradient_w,
                        g,
                    )
        for k in range(FOUR):
            for row in range(rows):
                gradient_a[row * padded + g + k] += total(load(room, (row * FOUR + k) * wide))
            gradient_w[g + k] += total(load(room, (ROWS * FOUR + k) * wide))
