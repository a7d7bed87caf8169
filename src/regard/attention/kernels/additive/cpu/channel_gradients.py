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
from regard.loops.vectors import (
    BITS,
    fused,
    load,
    load_four,
    repeat,
    splat,
    store_four,
    total,
    width_of,
)

FOUR = 4  # channels that share one division
MOST = BITS // 32  # numbers in a vector
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
    errors: Any,
    start: Any,
    stop: Any,
    powers: Any,
    at: Any,
    keys: Any,
    a: Any,
    padded: Any,
    for_c: Any,
    room: Any,
) -> None:
    """Four channels of a strip, queries `start` to `stop` of a tile.

    1/t_0 = (t_1 / (t_0 t_1)) and so on from 1 / (t_0 t_1 t_2 t_3).

    Args:
        errors: gradients of the scores, a row of STRIDE keys for each query.
        powers: C of the strip, channel by channel, from `at` on; `for_c`, their gradient, lies alike.
        keys: how many keys the strip has.
        a: A of the tile; rows are `padded` apart.
        room: where the queries' sums wait, lane by lane, and behind them those of the weights.
    """
    lanes()
    ones, wide = splat(errors, 1), width_of(errors)
    weights_at = ROWS * FOUR * wide
    for key in range(0, keys, wide):
        # The keys' and the weights' sums stay in registers while the queries pass.
        c, key_sums = load_four(powers, at + key, STRIP), load_four(for_c, at + key, STRIP)
        weight_sums = load_four(room, weights_at, wide)
        for query in range(start, stop):
            row, query_at = query * padded, query * FOUR * wide
            error = load(errors, query * STRIDE + key)
            # t = 1 + A C of the four channels, and r = 1 / t by one division.
            t_0, t_1 = repeat(a, row) * c[0] + ones, repeat(a, row + 1) * c[1] + ones
            t_2, t_3 = repeat(a, row + 2) * c[2] + ones, repeat(a, row + 3) * c[3] + ones
            t_01, t_23 = t_0 * t_1, t_2 * t_3
            inverse = ones / (t_01 * t_23)
            r_01, r_23 = inverse * t_23, inverse * t_01
            r_0, r_1, r_2, r_3 = r_01 * t_1, r_01 * t_0, r_23 * t_3, r_23 * t_2
            # e r (1 - r) for a and c, e r for w.
            slopes = r_0 - r_0 * r_0, r_1 - r_1 * r_1, r_2 - r_2 * r_2, r_3 - r_3 * r_3
            query_sums = load_four(room, query_at, wide)
            store_four(room, query_at, wide, _add_four(error, slopes, query_sums))
            key_sums = _add_four(error, slopes, key_sums)
            weight_sums = _add_four(error, (r_0, r_1, r_2, r_3), weight_sums)
        store_four(for_c, at + key, STRIP, key_sums)
        store_four(room, weights_at, wide, weight_sums)


@inner
def _add_four(error: Any, factors: Any, sums: Any) -> Any:
    """Four sums, to each of which the gradient of the scores times a factor is added."""
    lanes_inlined()
    sum_0, sum_1 = fused(error, factors[0], sums[0]), fused(error, factors[1], sums[1])
    return sum_0, sum_1, fused(error, factors[2], sums[2]), fused(error, factors[3], sums[3])


@inner_sum
def capped_one(e: Any, at: Any, spread: Any, power: Any, for_c: Any, to: Any, n: Any) -> Any:
    """One query and channel of a strip, A C no larger than CAP: the sums for a and for w."""
    lanes()
    one, cap = e.dtype.type(1), e.dtype.type(CAP)
    for_a = for_w = e.dtype.type(0)
    s, o = np.uint64(at), np.uint64(to)
    for j in range(np.uint64(n)):
        u = power * spread[o + j]
        r = one / ((cap if u > cap else u) + one)
        eg = e[s + j] * (r - r * r)
        for_c[o + j] += eg
        for_a += eg
        for_w += e[s + j] * r
    return for_a, for_w


@inner_sum
def direct_one(e: Any, at: Any, raw: Any, k: Any, plain: Any, for_c: Any, to: Any, n: Any) -> Any:
    """The same from the features themselves."""
    lanes()
    one, far = e.dtype.type(1), e.dtype.type(FAR)
    for_a = for_w = e.dtype.type(0)
    s, c, o = np.uint64(at), np.uint64(k * STRIP), np.uint64(to)
    for j in range(np.uint64(n)):
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
            if not span.strips >> column // STRIP & 1:
                continue
            strip, own = (span.begin + column) // STRIP, e[column:]
            corner = strip * padded + g
            at, n = corner * STRIP, min(STRIP, entry.keys - strip * STRIP)
            if product(a, ROWS * padded + g, top, corner) <= entry.ceiling:
                four(own, 0, tile.rows, entry.powers, at, n, rest, padded, for_c, room)
                continue
            columns(entry, strip, g, FOUR, raw)
            for row in range(tile.rows):
                i, at_e = row * padded + g, row * STRIDE
                if product(a, i, top, corner) <= entry.ceiling:
                    four(own, row, row + 1, entry.powers, at, n, rest, padded, for_c, room)
                    continue
                for k in range(FOUR):
                    to = at + k * STRIP
                    if a[i + k] * top[corner + k] < np.inf:
                        sums = capped_one(own, at_e, entry.powers, a[i + k], for_c, to, n)
                    else:
                        sums = direct_one(own, at_e, raw, k, tile.plain[i + k], for_c, to, n)
                    for_a[i + k] += sums[0]
                    for_w[g + k] += sums[1]
        for k in range(FOUR):
            for row in range(tile.rows):
                for_a[row * padded + g + k] += total(load(room, (row * FOUR + k) * wide))
            for_w[g + k] += total(load(room, (ROWS * FOUR + k) * wide))
