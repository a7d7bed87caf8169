"""e^x in loops that vectorise, and the exponentials that a row of features needs once.

    tanh(a + c) = 1 - 2 / (1 + e^(2a) e^(2c)) = 1 - 2 / (1 + A C)
    A = e^(2 (a + m)),  C = e^(2 (c - m))

m is 0, but the middle of the channel's keys where some of them are out of reach.

A and C are taken in float64 and rounded once. Where |a + m| or |c - m| is above REACH they might
overflow, or lose digits; they are then marked infinite, and the pair is computed directly.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from regard.attention.kernels.cpu.machine import (
    bits_of_double,
    bits_of_single,
    double_of_bits,
    inner,
    lanes,
    lanes_inlined,
    single_of_bits,
    written_out,
)

BLOCK = 512  # keys in a block: eight rows of scores fit the first-level cache
STRIDE = BLOCK + 16  # where the next row starts: not a power of two on, which would contend
STRIP = 32  # keys are counted in strips, whose channels lie one after another
REACH = 20.79  # e^(2 REACH) = 2^60

_F = np.float32
LOG2E, MAGIC = _F(1.4426950408889634), _F(1.5 * 2**23)
HIGH, LOW = _F(0.693359375), _F(-2.12194440e-4)  # ln 2 in two parts, Cephes
F0, F2, F3, F4, F5, F6, F7 = (_F(1 / math.factorial(k)) for k in (0, 2, 3, 4, 5, 6, 7))
LEAST, MOST = _F(-87.0), _F(88.0)

LOG2E64, MAGIC64 = 1.4426950408889634, 1.5 * 2.0**52
HIGH64, LOW64 = 6.93145751953125e-1, 1.42860682030941723212e-6
D2, D3, D4, D5, D6, D7 = (1 / math.factorial(k) for k in range(2, 8))
D8, D9, D10, D11, D12, D13 = (1 / math.factorial(k) for k in range(8, 14))
LEAST64, MOST64 = -708.0, 709.0


@inner
def _exponential32(x: Any) -> Any:
    """e^x within 1.5 units in the last place, from e^-87 to e^88; beyond, those."""
    x = LEAST if x < LEAST else x
    x = MOST if x > MOST else x
    shifted = x * LOG2E + MAGIC
    n = shifted - MAGIC
    f = (x - n * HIGH) - n * LOW
    p = f * F7 + F6
    p = p * f + F5
    p = p * f + F4
    p = p * f + F3
    p = p * f + F2
    p = (p * f + F0) * f + F0
    power = (bits_of_single(shifted) + np.int32(127)) << np.int32(23)
    return p * single_of_bits(np.int32(power))


@written_out
def _reduced64(x: Any) -> Any:
    """n + MAGIC and f, where x = n ln 2 + f."""
    shifted = x * LOG2E64 + MAGIC64
    n = shifted - MAGIC64
    return shifted, (x - n * HIGH64) - n * LOW64


@written_out
def _raised64(p: Any, f: Any, shifted: Any) -> Any:
    """2^n (1 + f + f^2 / 2! + ... + f^6 / 6! + f^7 p): how each series ends."""
    p = p * f + D6
    p = p * f + D5
    p = p * f + D4
    p = p * f + D3
    p = p * f + D2
    p = (p * f + 1.0) * f + 1.0
    power = (bits_of_double(shifted) + np.int64(1023)) << np.int64(52)
    return p * double_of_bits(power)


@inner
def _exponential64(x: Any) -> Any:
    x = LEAST64 if x < LEAST64 else x
    x = MOST64 if x > MOST64 else x
    shifted, f = _reduced64(x)
    p = f * D13 + D12
    p = p * f + D11
    p = p * f + D10
    p = p * f + D9
    p = p * f + D8
    p = p * f + D7
    return _raised64(p, f, shifted)


@inner
def _rounded64(x: Any) -> Any:
    """e^x in float64, within 3e-10: enough to be rounded once to float32."""
    shifted, f = _reduced64(x)
    return _raised64(f * D8 + D7, f, shifted)


def exponential_for(row: Any, x: Any) -> Any:
    """e^x of a float64 within reach, as exact as a row's numbers can hold."""
    return np.exp(x)


@overload(exponential_for, jit_options={"fastmath": {"contract"}})
def _overload_for(row: Any, x: Any) -> Any:
    compiled = _rounded64 if row.dtype == types.float32 else _exponential64

    def chosen(row: Any, x: Any) -> Any:
        return compiled(x)

    return chosen


def exponential(x: Any) -> Any:
    """e^x in the precision of x; NaN stays NaN."""
    return np.exp(x)


@overload(exponential, jit_options={"fastmath": {"contract"}})
def _overload(x: Any) -> Any:
    compiled = _exponential32 if x == types.float32 else _exponential64

    def chosen(x: Any) -> Any:
        return compiled(x)

    return chosen


@inner
def clear(row: Any, at: Any, n: Any) -> None:
    lanes_inlined()
    for j in range(np.uint64(n)):
        row[np.uint64(at) + j] = 0


@inner
def copy(row: Any, to: Any, given: Any, at: Any, n: Any) -> None:
    lanes()
    for j in range(np.uint64(n)):
        row[np.uint64(to) + j] = given[np.uint64(at) + j]


@inner
def multiply(row: Any, at: Any, left: Any, right: Any, n: Any) -> None:
    """row = left right, number by number; row and left from `at` on."""
    lanes()
    o = np.uint64(at)
    for j in range(np.uint64(n)):
        row[o + j] = left[o + j] * right[j]


@inner
def middles(features: Any, keys: Any, hidden: Any, middle: Any, room: Any) -> None:
    """m of each channel; `features` is one entry, keys x hidden; `room` for two rows.

    It is 0 where it can be, so that keys nobody may read do not move the last digits of others.
    """
    for h in range(hidden):
        room[h] = room[hidden + h] = features[h]
    for key in range(keys):
        _widen(features, key * hidden, hidden, room)
    half = features.dtype.type(0.5)
    for h in range(hidden):
        least, most = room[h], room[hidden + h]
        within = least >= -REACH and most <= REACH
        middle[h] = 0 if within else least * half + most * half


@inner
def _widen(features: Any, offset: Any, hidden: Any, room: Any) -> None:
    lanes()
    o, n = np.uint64(offset), np.uint64(hidden)
    for h in range(n):
        x = features[o + h]
        room[h] = x if x < room[h] else room[h]
        room[n + h] = x if x > room[n + h] else room[n + h]


@inner
def row_of_exponentials(
    features: Any, offset: Any, hidden: Any, middle: Any, sign: Any, row: Any, at: Any
) -> None:
    """e^(2 (x + sign m)) of one row, infinite where out of reach."""
    lanes()
    for h in range(np.uint64(hidden)):
        x = np.float64(features[np.uint64(offset) + h]) + sign * np.float64(middle[h])
        reached = abs(x) <= REACH
        power = exponential_for(row, 2.0 * x)
        row[np.uint64(at) + h] = power if reached else np.inf


@inner
def spread_keys(
    features: Any,
    keys: Any,
    hidden: Any,
    padded: Any,
    middle: Any,
    spread: Any,
    top: Any,
    strip: Any,
) -> None:
    """C of one entry, strip by strip, channels as rows of it, and the largest of each of these.

    What is beyond the keys or the channels is 0, so that 1 + A C is 1 there.
    """
    clear(strip, 0, STRIP * padded)
    clear(top, 0, top.size)
    for first in range(0, keys, STRIP):
        corner = first // STRIP * padded
        for k in range(STRIP):
            if first + k < keys:
                offset = (first + k) * hidden
                row_of_exponentials(features, offset, hidden, middle, -1.0, strip, k * padded)
            else:
                clear(strip, k * padded, padded)
            raise_to(top, corner, strip, k * padded, padded)
        turn(strip, padded, spread, corner * STRIP)


@inner
def raise_to(top: Any, to: Any, row: Any, at: Any, n: Any) -> None:
    """top = max(top, row), number by number."""
    lanes()
    for h in range(np.uint64(n)):
        x, best = row[np.uint64(at) + h], top[np.uint64(to) + h]
        top[np.uint64(to) + h] = x if x > best else best


@inner
def turn(strip: Any, padded: Any, spread: Any, at: Any) -> None:
    """Write a strip of keys as columns."""
    lanes()
    for h in range(padded):
        start = np.uint64(at + h * STRIP)
        for k in range(np.uint64(STRIP)):
            spread[start + k] = strip[k * np.uint64(padded) + np.uint64(h)]
