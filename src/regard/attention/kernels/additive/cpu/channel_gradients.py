"""Gradients through the hidden channels, of a tile of queries against a block of keys.

    d score / d a_h = w_h (1 - tanh^2) = 4 w_h r_h (1 - r_h),   d score / d w_h = 1 - 2 r_h

With e the gradient of the scores, these sum  e r (1 - r)  for each query's and each key's channel,
and  e r  for the weight; the factors are put on by the caller.
"""

from typing import Any

import numpy as np

from regard.attention.kernels.additive.cpu.features import STRIDE, STRIP
from regard.attention.kernels.additive.cpu.hidden import CAP, FAR, ROWS, columns, reciprocal
from regard.loops.compiling import inner, inner_sum, lanes, lanes_inlined
from regard.loops.rows import clear
from regard.loops.vectors import fused, load, load_four, repeat, splat, store_four, total, width_of

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
    e: Any, first: Any, last: Any, spread: Any, at: Any, a: Any, padded: Any, for_c: Any, room: Any
) -> None:
    """Four channels of a strip, queries `first` to `last` of a tile; `a` from `padded` on, A of the first.

    1/t_0 = (t_1 / (t_0 t_1)) and so on from 1 / (t_0 t_1 t_2 t_3). The keys' sums stay in registers
    while the queries pass; the queries' wait in `room`, and behind them those of the weights.
    """
    lanes()
    one, wide = splat(e, 1), width_of(e)
    end = ROWS * FOUR * wide
    for j in range(0, STRIP, wide):
        k, y = load_four(spread, at + j, STRIP), load_four(for_c, at + j, STRIP)
        z = load_four(room, end, wide)
        for row in range(first, last):
            of, x = row * padded, row * FOUR * wide
            given = load(e, row * STRIDE + j)
            t0, t1 = repeat(a, of) * k[0] + one, repeat(a, of + 1) * k[1] + one
            t2, t3 = repeat(a, of + 2) * k[2] + one, repeat(a, of + 3) * k[3] + one
            t01, t23 = t0 * t1, t2 * t3
            both = one / (t01 * t23)
            i01, i23 = both * t23, both * t01
            r0, r1, r2, r3 = i01 * t1, i01 * t0, i23 * t3, i23 * t2
            f = r0 - r0 * r0, r1 - r1 * r1, r2 - r2 * r2, r3 - r3 * r3
            store_four(room, x, wide, _add_four(given, f, load_four(room, x, wide)))
            y, z = _add_four(given, f, y), _add_four(given, (r0, r1, r2, r3), z)
        store_four(for_c, at + j, STRIP, y)
        store_four(room, end, wide, z)


@inner
def _add_four(given: Any, f: Any, sums: Any) -> Any:
    lanes_inlined()
    s0, s1 = fused(given, f[0], sums[0]), fused(given, f[1], sums[1])
    return s0, s1, fused(given, f[2], sums[2]), fused(given, f[3], sums[3])


@inner_sum
def capped_one(e: Any, at: Any, spread: Any, power: Any, for_c: Any, to: Any) -> Any:
    """One query and channel of a strip, A C no larger than CAP: the sums for a and for w."""
    lanes()
    one, cap = e.dtype.type(1), e.dtype.type(CAP)
    for_a = for_w = e.dtype.type(0)
    s, o = np.uint64(at), np.uint64(to)
    for j in range(np.uint64(STRIP)):
        u = power * spread[o + j]
        r = one / ((cap if u > cap else u) + one)
        eg = e[s + j] * (r - r * r)
        for_c[o + j] += eg
        for_a += eg
        for_w += e[s + j] * r
    return for_a, for_w


@inner_sum
def direct_one(e: Any, at: Any, raw: Any, k: Any, plain: Any, for_c: Any, to: Any) -> Any:
    """The same from the features themselves."""
    lanes()
    one, far = e.dtype.type(1), e.dtype.type(FAR)
    for_a = for_w = e.dtype.type(0)
    s, c, o = np.uint64(at), np.uint64(k * STRIP), np.uint64(to)
    for j in range(np.uint64(STRIP)):
        r = reciprocal(plain + raw[c + j], one, far)
        eg = e[s + j] * (r - r * r)
        for_c[o + j] += eg
        for_a += eg
        for_w += e[s + j] * r
    return for_a, for_w


@inner
def channel_gradients(buffers: Any, entry: Any, tile: Any, span: Any) -> None:
    """Add to the gradients of A's, C's and the weights' channels, from the gradients of the scores.

    If the largest A of a tile is safe, all of them are.
    """
    lanes()
    e, room, raw, a, top = buffers.errors, buffers.room, buffers.raw, tile.powers, entry.top
    wide, padded = width_of(e), entry.weights.shape[0]
    for_a, for_c, for_w = buffers.for_a, buffers.for_keys, buffers.for_w
    for g in range(0, padded, FOUR):
        clear(room, 0, ROOM)
        rest = a[g:]
        for column in range(span.left, span.right, STRIP):
            strip, own = (span.begin + column) // STRIP, e[column:]
            corner = strip * padded + g
            at = corner * STRIP
            if product(a, ROWS * padded + g, top, corner) <= entry.ceiling:
                four(own, 0, tile.rows, entry.powers, at, rest, padded, for_c, room)
                continue
            columns(entry, strip, g, FOUR, raw)
            for row in range(tile.rows):
                i, at_e = row * padded + g, row * STRIDE
                if product(a, i, top, corner) <= entry.ceiling:
                    four(own, row, row + 1, entry.powers, at, rest, padded, for_c, room)
                    continue
                for k in range(FOUR):
                    to = at + k * STRIP
                    if a[i + k] * top[corner + k] < np.inf:
                        sums = capped_one(own, at_e, entry.powers, a[i + k], for_c, to)
                    else:
                        sums = direct_one(own, at_e, raw, k, tile.plain[i + k], for_c, to)
                    for_a[i + k] += sums[0]
                    for_w[g + k] += sums[1]
        for k in range(FOUR):
            for row in range(tile.rows):
                for_a[row * padded + g + k] += total(load(room, (row * FOUR + k) * wide))
            for_w[g + k] += total(load(room, (ROWS * FOUR + k) * wide))
