"""Scores of a few queries against a block of keys: the sum over the hidden channels.

    score = sum_h w_h tanh(a_h + c_h) = sum_h w_h - 2 sum_h w_h r_h,   r_h = 1 / t_h,  t_h = 1 + A_h C_h

`sums` holds sum_h w_h r_h, a row of BLOCK keys for each query. Channels come in groups of GROUP, and
keys in strips of STRIP. Products are first taken without a check for overflow; sums that are not
finite are computed again with care.
"""

from typing import Any

import numpy as np

from regard.attention.kernels.additive.cpu.features import STRIDE, STRIP
from regard.attention.kernels.additive.cpu.groups import GROUP
from regard.loops.cache import keep
from regard.loops.compiling import inner, lanes, lanes_inlined
from regard.loops.exponentials import exponential
from regard.loops.rows import clear
from regard.loops.vectors import load, repeat, splat, store_four, total, width_of

ROWS = 8  # queries in a tile, a multiple of four
MARGIN = 2.0**8  # room left above a divisor, so that 1 / d keeps its digits
CAP = 2.0**60  # 1 / (1 + 2^60) is 0 beside 1 in float32 and float64
FAR = 20.0  # tanh is 1 to float64's last place from here on


@inner
def four_rows(
    sums: Any,
    to: Any,
    powers: Any,
    at: Any,
    keys: Any,
    scaled: Any,
    query: Any,
    ratios: Any,
    turns: Any,
) -> Any:
    """sums = sum of w_h / t_h of four queries and the keys of a strip; the number returned is 0, or NaN.

    n / d + 1 / u = (n u + d) / (d u),   u = (g / w) t = g / w + (A g / w) C

    takes three operations a channel, and one division for two groups, n turned from the units of
    the first to those of the second between.

    Args:
        sums: of the first query, from `to` on; of the others STRIDE apart.
        powers: C of the strip, channel by channel, from `at` on.
        keys: how many keys the strip has; sums up to a whole vector are written.
        scaled: A g / w of the first query, from `query` on; of the others behind it.
        ratios: g / w of each channel.
        turns: of each two groups, see `groups`.
    """
    lanes()
    padded, wide = ratios.shape[0], width_of(sums)
    zeros, ones, margin = splat(sums, 0), splat(sums, 1), splat(sums, MARGIN)
    check = zeros
    # Four queries and a vector of keys: four chains that do not wait for each other.
    for key in range(0, keys, wide):
        sum_0 = sum_1 = sum_2 = sum_3 = zeros
        for group in range(0, padded, 2 * GROUP):
            # The first channel: n / d = 1 / u.
            d_0, d_1, d_2, d_3 = _divisors(powers, at + key, scaled, query, ratios, group)
            n_0 = n_1 = n_2 = n_3 = ones
            for h in range(group + 1, group + 2 * GROUP):
                if h == group + GROUP:
                    turn = repeat(turns, group // GROUP)
                    n_0, n_1, n_2, n_3 = n_0 * turn, n_1 * turn, n_2 * turn, n_3 * turn
                # One more channel: n / d becomes n / d + 1 / u.
                u_0, u_1, u_2, u_3 = _divisors(powers, at + key, scaled, query, ratios, h)
                n_0, n_1 = n_0 * u_0 + d_0, n_1 * u_1 + d_1
                n_2, n_3 = n_2 * u_2 + d_2, n_3 * u_3 + d_3
                d_0, d_1, d_2, d_3 = d_0 * u_0, d_1 * u_1, d_2 * u_2, d_3 * u_3
            unit = repeat(turns, group // GROUP + 1)
            sum_0, sum_1 = sum_0 + unit * (n_0 / d_0), sum_1 + unit * (n_1 / d_1)
            sum_2, sum_3 = sum_2 + unit * (n_2 / d_2), sum_3 + unit * (n_3 / d_3)
            check = check + d_0 * margin + d_1 * margin + d_2 * margin + d_3 * margin
        store_four(sums, to + key, STRIDE, (sum_0, sum_1, sum_2, sum_3))
        check = check + (sum_0 + sum_1) + (sum_2 + sum_3)
    # A number that is nearly too large makes the sum infinite, and 0 times infinity is NaN.
    return total(check * zeros)


@inner
def _divisors(powers: Any, at: Any, scaled: Any, query: Any, ratios: Any, h: Any) -> Any:
    """u of one channel, for four queries and a vector of keys."""
    lanes_inlined()
    padded = ratios.shape[0]
    first, keys, ratio = query + h, load(powers, at + h * STRIP), repeat(ratios, h)
    third = first + 2 * padded
    u_0, u_1 = repeat(scaled, first) * keys + ratio, repeat(scaled, first + padded) * keys + ratio
    u_2, u_3 = repeat(scaled, third) * keys + ratio, repeat(scaled, third + padded) * keys + ratio
    return u_0, u_1, u_2, u_3


@inner
def capped(sums: Any, to: Any, spread: Any, at: Any, a: Any, row: Any, w: Any, g: Any) -> None:
    """sums += sum of w_h / t_h of one query, two channels a division, A C no larger than CAP."""
    lanes()
    one, cap = sums.dtype.type(1), sums.dtype.type(CAP)
    s = np.uint64(to)
    for k in range(0, GROUP, 2):
        c0, c1 = np.uint64(at + k * STRIP), np.uint64(at + (k + 1) * STRIP)
        a0, a1, w0, w1 = a[row + k], a[row + k + 1], w[g + k], w[g + k + 1]
        for j in range(np.uint64(STRIP)):
            u0, u1 = a0 * spread[c0 + j], a1 * spread[c1 + j]
            t0, t1 = (cap if u0 > cap else u0) + one, (cap if u1 > cap else u1) + one
            sums[s + j] += (w0 * t1 + w1 * t0) / (t0 * t1)


@inner
def direct(sums: Any, to: Any, raw: Any, a: Any, row: Any, w: Any, g: Any) -> None:
    """The same from the features themselves, r = 1 / (1 + e^(2 (a + c)))."""
    lanes()
    one, far = sums.dtype.type(1), sums.dtype.type(FAR)
    s = np.uint64(to)
    for k in range(GROUP):
        c0 = np.uint64(k * STRIP)
        a0, w0 = a[row + k], w[g + k]
        for j in range(np.uint64(STRIP)):
            sums[s + j] += w0 * reciprocal(a0 + raw[c0 + j], one, far)


@inner
def reciprocal(x: Any, one: Any, far: Any) -> Any:
    """1 / (1 + e^(2x)); a NaN stays one."""
    x = far if x > far else x
    x = -far if x < -far else x
    return one / (one + exponential(x + x))


@inner
def columns(entry: Any, strip: Any, g: Any, count: Any, raw: Any) -> None:
    """`count` channels of a strip of keys as rows; 0 beyond the keys and the channels."""
    first, keys, hidden = strip * STRIP, entry.keys, entry.hidden
    for k in range(count):
        for j in range(STRIP):
            inside = first + j < keys and g + k < hidden
            raw[k * STRIP + j] = entry.c[(first + j) * hidden + g + k] if inside else 0.0


@inner
def within(a: Any, at: Any, top: Any, to: Any) -> Any:
    """Whether all A and C of a group are numbers."""
    most = a.dtype.type(0)
    for k in range(GROUP):
        most += a[at + k] * top[to + k]
    return most < np.inf


@inner
def sum_carefully(
    sums: Any, failed: Any, entry: Any, tile: Any, strip: Any, column: Any, raw: Any
) -> None:
    """A strip again, for the queries whose bit is set in `failed`, 0 beyond the tile; its sums begin at `column`."""
    a, w, padded = tile.powers, entry.weights, entry.weights.shape[0]
    for row in range(ROWS):
        if failed >> row & 1:
            clear(sums, row * STRIDE + column, STRIP)
    for g in range(0, padded, GROUP):
        corner, filled = strip * padded + g, False
        for row in range(tile.rows):
            to, at = row * STRIDE + column, row * padded + g
            if failed >> row & 1 and within(a, at, entry.top, corner):
                capped(sums, to, entry.powers, corner * STRIP, a, at, w, g)
            elif failed >> row & 1:
                if not filled:
                    columns(entry, strip, g, GROUP, raw)
                    filled = True
                direct(sums, to, raw, tile.plain, at, w, g)


@keep
@inner
def sum_channels(sums: Any, entry: Any, tile: Any, span: Any, raw: Any) -> None:
    """Fill `sums` for the queries of a tile and the strips of a span that they read."""
    padded = entry.weights.shape[0]
    ratios, turns = entry.ratios, entry.turns
    for column in range(span.left, span.right, STRIP):
        if not span.strips >> column // STRIP & 1:
            continue
        strip, failed = (span.begin + column) // STRIP, 0
        at, keys = strip * padded * STRIP, min(STRIP, entry.keys - strip * STRIP)
        for row in range(0, tile.rows, 4):
            to, own = row * STRIDE + column, row * padded
            check = four_rows(sums, to, entry.powers, at, keys, tile.scaled, own, ratios, turns)
            if check != 0.0:  # NaN is not
                failed |= 15 << row
        if failed:
            sum_carefully(sums, failed, entry, tile, strip, column, raw)
