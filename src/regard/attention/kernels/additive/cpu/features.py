"""The exponentials that a row of features needs once, for every pair it is in.

    tanh(a + c) = 1 - 2 / (1 + e^(2a) e^(2c)) = 1 - 2 / (1 + A C),   A = e^(2a),  C = e^(2c)

A and C are taken in float64 and rounded once. Where |a| or |c| is above REACH they might overflow, or
lose digits; they are then marked infinite, and the pair is computed directly.
"""

from typing import Any

import numpy as np

from regard.loops.compiling import inner, lanes
from regard.loops.exponentials import exponential
from regard.loops.rows import clear

BLOCK = 512  # keys in a block: eight rows of scores fit the first-level cache
STRIDE = BLOCK + 16  # where the next row starts: not a power of two on, which would contend
STRIP = 32  # keys are counted in strips, whose channels lie one after another
REACH = 20.79  # e^(2 REACH) = 2^60


@inner
def row_of_exponentials(features: Any, offset: Any, hidden: Any, row: Any, at: Any) -> None:
    """e^(2x) of one row, infinite where out of reach."""
    lanes()
    for h in range(np.uint64(hidden)):
        x = np.float64(features[np.uint64(offset) + h])
        power = exponential(2.0 * x)
        row[np.uint64(at) + h] = power if abs(x) <= REACH else np.inf


@inner
def spread_keys(
    features: Any, keys: Any, hidden: Any, padded: Any, spread: Any, top: Any, strip: Any
) -> None:
    """C of one entry, strip by strip, channels as rows of it, and the largest of each of these.

    Numbers beyond the keys or the channels are 0, so that 1 + A C is 1 there.
    """
    clear(strip, 0, STRIP * padded)
    clear(top, 0, top.size)
    for first in range(0, keys, STRIP):
        corner = first // STRIP * padded
        for k in range(STRIP):
            if first + k < keys:
                row_of_exponentials(features, (first + k) * hidden, hidden, strip, k * padded)
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
