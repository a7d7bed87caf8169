"""The small loops of the backward pass: products, sums, and the chain rule of a row."""

from __future__ import annotations

from typing import Any

import numpy as np

from regard.attention.kernels.additive.cpu.features import STRIP
from regard.loops.compiling import inner, lanes, written_out
from regard.loops.rows import add, sum_of


@inner
def through_softmax(e: Any, p: Any, to: Any, n: Any, mean: Any, factor: Any) -> None:
    """dz / T from dp, in place; 0 where the weight is 0."""
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
def write_scaled(total: Any, to: Any, part: Any, at: Any, n: Any, factor: Any) -> None:
    lanes()
    s, k = np.uint64(to), np.uint64(at)
    for j in range(np.uint64(n)):
        total[s + j] += factor * part[k + j]
        part[k + j] = 0


@written_out
def bias_gradient(gradient: Any, query: Any, first: Any, e: Any, at: Any, n: Any) -> None:
    i = query if gradient.shape[0] > 1 else 0
    if gradient.shape[1] > 1:
        add(gradient[i], first, e, at, n)
    else:
        gradient[i, 0] += sum_of(e, at, n)


@inner
def hand_over(gradient: Any, part: Any, keys: Any, hidden: Any, padded: Any) -> None:
    """Add a worker's part of the keys' gradient, strip by strip, to keys x hidden; clear it."""
    for first in range(0, keys, STRIP):
        for h in range(hidden):
            at = first * padded + h * STRIP
            for k in range(min(STRIP, keys - first)):
                gradient[(first + k) * hidden + h] += part[at + k]
                part[at + k] = 0
