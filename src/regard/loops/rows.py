"""Loops over rows of numbers: sums, products, copies, maxima, log-sum-exps and the best few.

A row lies in a flat array from a place on, or is an array of its own.
"""

from typing import Any

import numpy as np

from regard.loops.compiling import inner, inner_sum, lanes, lanes_inlined
from regard.loops.exponentials import exponential
from regard.loops.vectors import larger, load, maximum, splat, width_of


@inner
def clear(row: Any, at: Any, count: Any) -> None:
    lanes_inlined()
    for i in range(np.uint64(count)):
        row[np.uint64(at) + i] = 0


@inner
def copy(target: Any, to: Any, source: Any, at: Any, count: Any) -> None:
    lanes()
    for i in range(np.uint64(count)):
        target[np.uint64(to) + i] = source[np.uint64(at) + i]


@inner
def multiply(product: Any, at: Any, factors: Any, weights: Any, count: Any) -> None:
    """product = factors weights, number by number; product and factors from `at` on."""
    lanes()
    start = np.uint64(at)
    for i in range(np.uint64(count)):
        product[start + i] = factors[start + i] * weights[i]


@inner_sum
def dot(query: Any, at: Any, key: Any, to: Any, count: Any) -> Any:
    lanes()
    query_start, key_start = np.uint64(at), np.uint64(to)
    total = query.dtype.type(0)
    for i in range(np.uint64(count)):
        total += query[query_start + i] * key[key_start + i]
    return total


@inner
def add(total: Any, to: Any, term: Any, at: Any, count: Any) -> None:
    lanes()
    total_start, term_start = np.uint64(to), np.uint64(at)
    for i in range(np.uint64(count)):
        total[total_start + i] += term[term_start + i]


@inner
def add_product(
    total: Any, to: Any, term: Any, at: Any, weights: Any, count: Any, factor: Any
) -> None:
    """total += factor weights term, number by number."""
    lanes()
    total_start, term_start = np.uint64(to), np.uint64(at)
    for i in range(np.uint64(count)):
        total[total_start + i] += factor * weights[i] * term[term_start + i]


@inner_sum
def sum_of(row: Any, at: Any, count: Any) -> Any:
    lanes()
    total = 0.0
    for i in range(np.uint64(count)):
        total += np.float64(row[np.uint64(at) + i])
    return total


@inner
def largest(row: Any, at: Any, count: Any) -> Any:
    """The largest number of a row, which is not NaN; count is a multiple of the lanes of a vector."""
    lanes()
    wide = width_of(row)
    final = at + count - wide
    even = odd = splat(row, -np.inf)
    for start in range(at, at + count, 2 * wide):  # neither waits for the other
        even, odd = larger(load(row, start), even), larger(load(row, min(start + wide, final)), odd)
    return maximum(larger(even, odd))


@inner
def peak_of(row: Any) -> Any:
    """The largest number; -inf if all are, and a NaN may be lost."""
    in_vectors = row.size - row.size % width_of(row)
    best = largest(row, 0, in_vectors) if in_vectors else row[0]
    for i in range(in_vectors, row.size):
        best = row[i] if row[i] > best else best
    return best


@inner_sum
def exponential_sum(row: Any, peak: Any) -> Any:
    """The sum of e^(x - peak)."""
    lanes()
    total = np.float32(0)
    for i in range(np.uint64(row.size)):
        total += exponential(row[i] - peak)
    return total


@inner
def insert(values: Any, places: Any, value: Any, place: Any) -> None:
    """Put a value that is above the last one where it belongs, behind its equals; the last one leaves."""
    rank = values.size - 1
    while rank > 0 and value > values[rank - 1]:
        values[rank], places[rank] = values[rank - 1], places[rank - 1]
        rank -= 1
    values[rank], places[rank] = value, place
