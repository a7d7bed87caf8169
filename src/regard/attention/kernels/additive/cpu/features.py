"""The exponentials that a row of features needs once, for every pair it is in.

    tanh(a + c) = 1 - 2 / (1 + e^(2a) e^(2c)) = 1 - 2 / (1 + A C),   A = e^(2a),  C = e^(2c)

A and C are within 1.5 units in their last place, so tanh is within 1.8e-7 in float32. Where |a| or |c| is above
REACH they might overflow, or lose digits; they are then marked infinite, and the pair is computed directly.
"""

from typing import Any

import numpy as np

from regard.loops.compiling import inner, lanes
from regard.loops.exponentials import exponential
from regard.loops.rows import clear
from regard.loops.vectors import BITS

BLOCK = 512  # keys in a block: eight rows of scores fit the first-level cache
STRIDE = BLOCK + 16  # where the next row starts: not a power of two on, which would contend
STRIP = 32  # keys are counted in strips, whose channels lie one after another
SIDE = BITS // 32  # of these, keys that are turned at a time: whole vectors
GAP = 16  # numbers between rows that are turned: at powers of two apart they would contend
REACH = 20.79  # e^(2 REACH) = 2^60


@inner
def row_of_exponentials(features: Any, offset: Any, hidden: Any, row: Any, at: Any) -> None:
    """e^(2x) of one row, infinite where out of reach."""
    lanes()
    reach, far = row.dtype.type(REACH), row.dtype.type(np.inf)
    for h in range(np.uint64(hidden)):
        x = features[np.uint64(offset) + h]
        power = exponential(x + x)
        row[np.uint64(at) + h] = power if abs(x) <= reach else far


@inner
def spread_keys(
    features: Any, keys: Any, hidden: Any, padded: Any, spread: Any, top: Any, rows: Any
) -> None:
    """C of one entry, strip by strip, channels as rows of it, and the largest of each of these.

    Of a strip with fewer keys, those up to a whole number of SIDE are 0, so that 1 + A C is 1 there, and others are
    not written. `rows` is room for SIDE keys, zeros beyond the channels.
    """
    pitch = padded + GAP
    clear(top, 0, top.size)
    for begin in range(0, keys, SIDE):
        corner, count = begin // STRIP * padded, min(SIDE, keys - begin)
        for k in range(count):
            row_of_exponentials(features, (begin + k) * hidden, hidden, rows, k * pitch)
            raise_to(top, corner, rows, k * pitch, padded)
        clear(rows, count * pitch, (SIDE - count) * pitch)
        turn(rows, padded, spread, corner * STRIP + begin % STRIP)


@inner
def raise_to(top: Any, to: Any, row: Any, at: Any, n: Any) -> None:
    """top = max(top, row), number by number."""
    lanes()
    for h in range(np.uint64(n)):
        x, best = row[np.uint64(at) + h], top[np.uint64(to) + h]
        top[np.uint64(to) + h] = x if x > best else best


@inner
def turn(rows: Any, padded: Any, spread: Any, at: Any) -> None:
    """Write SIDE rows as columns of a strip."""
    lanes()
    pitch = np.uint64(padded + GAP)
    for h in range(padded):
        start = np.uint64(at + h * STRIP)
        for k in range(np.uint64(SIDE)):
            spread[start + k] = rows[k * pitch + np.uint64(h)]
