"""Loops over rows of numbers: sums, products, copies and maxima."""

from typing import Any

import numpy as np

from regard.loops.compiling import inner, inner_sum, lanes, lanes_inlined
from regard.loops.vectors import larger, load, most, splat, width_of


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


@inner_sum
def dot(left: Any, at: Any, right: Any, to: Any, n: Any) -> Any:
    lanes()
    i, j = np.uint64(at), np.uint64(to)
    total = left.dtype.type(0)
    for d in range(np.uint64(n)):
        total += left[i + d] * right[j + d]
    return total


@inner
def add(total: Any, to: Any, part: Any, at: Any, n: Any) -> None:
    lanes()
    s, k = np.uint64(to), np.uint64(at)
    for j in range(np.uint64(n)):
        total[s + j] += part[k + j]


@inner
def add_product(total: Any, to: Any, part: Any, at: Any, weights: Any, n: Any, factor: Any) -> None:
    """total += factor weights part, number by number."""
    lanes()
    s, k = np.uint64(to), np.uint64(at)
    for h in range(np.uint64(n)):
        total[s + h] += factor * weights[h] * part[k + h]


@inner_sum
def sum_of(row: Any, at: Any, n: Any) -> Any:
    lanes()
    total = 0.0
    for j in range(np.uint64(n)):
        total += np.float64(row[np.uint64(at) + j])
    return total


@inner
def largest(row: Any, at: Any, n: Any) -> Any:
    """The largest number of a row, which is not NaN; n is a multiple of the lanes of a vector."""
    lanes()
    wide = width_of(row)
    last = at + n - wide
    even = odd = splat(row, -np.inf)
    for start in range(at, at + n, 2 * wide):  # neither waits for the other
        even, odd = larger(load(row, start), even), larger(load(row, min(start + wide, last)), odd)
    return most(larger(even, odd))
