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
from regard.loops.compiling import inner, lanes
from regard.loops.exponentials import exponential
from regard.loops.rows import clear
from regard.loops.vectors import load, repeat, splat, store, total, width_of

ROWS = 8  # queries in a tile, an even number
MARGIN = 2.0**8  # room left above a divisor, so that 1 / d keeps its digits
CAP = 2.0**60  # 1 / (1 + 2^60) is 0 beside 1 in float32 and float64
FAR = 20.0  # tanh is 1 to float64's last place from here on


@inner
def two_rows(
    sums: Any, to: Any, powers: Any, at: Any, scaled: Any, query: Any, ratios: Any, turns: Any
) -> Any:
    """sums = sum of w_h / t_h of two queries and a strip; the number returned is 0, or NaN.

    n / d + 1 / u = (n u + d) / (d u),   u = (g / w) t = g / w + (A g / w) C

    takes three operations a channel, and one division for two groups, n turned from the units of
    the first to those of the second between.

    Args:
        sums: of the first query, from `to` on; of the second a STRIDE later.
        powers: C of the strip, channel by channel, from `at` on.
        scaled: A g / w of the first query, from `query` on; of the second behind it.
        ratios: g / w of each channel.
        turns: of each two groups, see `groups`.
    """
    lanes()
    padded = ratios.shape[0]
    wide, second, to_second = width_of(sums), query + padded, to + STRIDE
    zeros, ones, margin = splat(sums, 0), splat(sums, 1), splat(sums, MARGIN)
    check = zeros
    # Two queries (the first index) and two vectors of keys (the second): four chains that do not wait for
    # each other.
    for key in range(0, STRIP, 2 * wide):
        sum_00 = sum_01 = sum_10 = sum_11 = zeros
        for group in range(0, padded, 2 * GROUP):
            # The first channel: n / d = 1 / u.
            corner = at + group * STRIP + key
            keys_0, keys_1 = load(powers, corner), load(powers, corner + wide)
            ratio = repeat(ratios, group)
            query_0, query_1 = repeat(scaled, query + group), repeat(scaled, second + group)
            d_00, d_01 = query_0 * keys_0 + ratio, query_0 * keys_1 + ratio
            d_10, d_11 = query_1 * keys_0 + ratio, query_1 * keys_1 + ratio
            n_00 = n_01 = n_10 = n_11 = ones
            for h in range(group + 1, group + 2 * GROUP):
                if h == group + GROUP:
                    turn = repeat(turns, group // GROUP)
                    n_00, n_01, n_10, n_11 = n_00 * turn, n_01 * turn, n_10 * turn, n_11 * turn
                # One more channel: n / d becomes n / d + 1 / u.
                corner = at + h * STRIP + key
                keys_0, keys_1 = load(powers, corner), load(powers, corner + wide)
                ratio = repeat(ratios, h)
                query_0, query_1 = repeat(scaled, query + h), repeat(scaled, second + h)
                u_00, u_01 = query_0 * keys_0 + ratio, query_0 * keys_1 + ratio
                u_10, u_11 = query_1 * keys_0 + ratio, query_1 * keys_1 + ratio
                n_00, n_01 = n_00 * u_00 + d_00, n_01 * u_01 + d_01
                n_10, n_11 = n_10 * u_10 + d_10, n_11 * u_11 + d_11
                d_00, d_01, d_10, d_11 = d_00 * u_00, d_01 * u_01, d_10 * u_10, d_11 * u_11
            unit = repeat(turns, group // GROUP + 1)
            sum_00, sum_01 = sum_00 + unit * (n_00 / d_00), sum_01 + unit * (n_01 / d_01)
            sum_10, sum_11 = sum_10 + unit * (n_10 / d_10), sum_11 + unit * (n_11 / d_11)
            check = check + d_00 * margin + d_01 * margin + d_10 * margin + d_11 * margin
        store(sums, to + key, sum_00)
        store(sums, to + key + wide, sum_01)
        store(sums, to_second + key, sum_10)
        store(sums, to_second + key + wide, sum_11)
        check = check + (sum_00 + sum_01) + (sum_10 + sum_11)
    # A number that is nearly too large makes the sum infinite, and 0 times infinity is NaN.
    return total(check * zeros)


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
    """A strip again, for the queries whose bit is set in `failed`; its sums begin at `column`."""
    a, w, padded = tile.powers, entry.weights, entry.weights.shape[0]
    for row in range(ROWS):
        if failed >> row & 1:
            clear(sums, row * STRIDE + column, STRIP)
    for g in range(0, padded, GROUP):
        corner, filled = strip * padded + g, False
        for row in range(ROWS):
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
    """Fill `sums` for the queries of a tile and the keys of a span."""
    padded = entry.weights.shape[0]
    ratios, turns = entry.ratios, entry.turns
    for column in range(span.left, span.right, STRIP):
        strip, failed = (span.begin + column) // STRIP, 0
        at = strip * padded * STRIP
        for row in range(0, tile.rows, 2):
            to, own = row * STRIDE + column, row * padded
            check = two_rows(sums, to, entry.powers, at, tile.scaled, own, ratios, turns)
            if check != 0.0:  # NaN is not
                failed |= 3 << row
        if failed:
            sum_carefully(sums, failed, entry, tile, strip, column, raw)
