"""The small loops of the backward pass: products, sums, and the chain rule of a row."""

from __future__ import annotations

from typing import Any

import numpy as np

from regard.attention.kernels.cpu.exponentials import STRIP
from regard.attention.kernels.cpu.machine import inner, inner_sum, lanes, written_out


@inner_sum
def dot(left: Any, at: Any, right: Any, to: Any, n: Any) -> Any:
    lanes()
    i, j = np.uint64(at), np.uint64(to)
    total = left.dtype.type(0)
    for d in range(np.uint64(n)):
        total += left[i + d] * right[j + d]
    return total


@inner
def through_softmax(e: Any, p: Any, to: Any, n: Any, mean: Any, factor: Any) -> None:
    """dz / T from dp, in place; nothing where the weight is nothing."""
    lanes()
    s, zero = np.uint64(to), e.dtype.type(0)
    for j in range(np.uint64(n)):
        x = p[s + j] * (e[s + j] - mean) * factor
        e[s + j] = x if p[s + j] != zero else zero


@inner
def through_cap(e: Any, capped: Any, to: Any, n: Any, cap: Any) -> None:
    lanes()
    s, one, inverse = np.uint64(to), e.dtype.type(1), e.dtype.type(1.0 / cap)
    for j in range(np.uint64(n)):
        y = capped[s + j] * inverse
        e[s + j] *= one - y * y


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
def write_scaled(total: Any, to: Any, part: Any, at: Any, n: Any, factor: Any) -> None:
    lanes()
    s, k = np.uint64(to), np.uint64(at)
    for j in range(np.uint64(n)):
        total[s + j] += factor * part[k + j]
        part[k + j] = 0


@written_out
def bias_gradient(slope: Any, query: Any, first: Any, e: Any, at: Any, n: Any) -> None:
    i = query if slope.shape[0] > 1 else 0
    if slope.shape[1] > 1:
        add(slope[i], first, e, at, n)
    else:
        slope[i, 0] += sum_of(e, at, n)


@inner
def hand_over(slope: Any, part: Any, keys: Any, hidden: Any, padded: Any) -> None:
    """Add a worker's part of the keys' gradient, strip by strip, to keys x hidden; clear it."""
    for first in range(0, keys, STRIP):
        for h in range(hidden):
            at = first * padded + h * STRIP
            for k in range(min(STRIP, keys - first)):
                slope[(first + k) * hidden + h] += part[at + k]
                part[at + k] = 0
