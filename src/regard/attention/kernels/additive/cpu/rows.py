"""From sums over channels to scores and weights: cap, bias, mask, temperature, one row at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from regard.attention.kernels.additive.cpu.features import BLOCK, STRIP
from regard.attention.kernels.additive.cpu.values import scale_row
from regard.loops.compiling import inner, inner_sum, lanes
from regard.loops.exponentials import exponential
from regard.loops.rows import add


@inner
def open_scores(sums: Any, to: Any, n: Any, total: Any, cap: Any) -> None:
    """score = sum w - 2 sum w r, or cap tanh(score / cap), in place."""
    lanes()
    s, two = np.uint64(to), sums.dtype.type(2)
    if cap == 0.0:
        for j in range(np.uint64(n)):
            sums[s + j] = total - two * sums[s + j]
    else:
        for j in range(np.uint64(n)):
            x = np.float64(total - two * sums[s + j]) / cap
            x = 20.0 if x > 20.0 else x
            x = -20.0 if x < -20.0 else x
            sums[s + j] = cap * (1.0 - 2.0 / (1.0 + exponential(2.0 * x)))


@inner
def shut_masked(scores: Any, to: Any, mask: Any, at: Any, n: Any) -> None:
    lanes()
    s, m, never = np.uint64(to), np.uint64(at), scores.dtype.type(-np.inf)
    for j in range(np.uint64(n)):
        scores[s + j] = scores[s + j] if mask[m + j] else never


@inner
def shut_others(scores: Any, to: Any, own: Any, documents: Any, at: Any, n: Any) -> None:
    lanes()
    s, d, never = np.uint64(to), np.uint64(at), scores.dtype.type(-np.inf)
    for j in range(np.uint64(n)):
        scores[s + j] = scores[s + j] if documents[d + j] == own else never


@inner_sum
def weigh(scores: Any, to: Any, n: Any, peak: Any, factor: Any) -> Any:
    """weights = factor e^(score - peak), in place, 0 where the score is -inf; their sum."""
    lanes()
    s, never, zero = np.uint64(to), scores.dtype.type(-np.inf), scores.dtype.type(0)
    total = zero
    for j in range(np.uint64(n)):
        x = scores[s + j]
        p = exponential(x - peak) * factor
        p = zero if x == never else p
        scores[s + j] = p
        total += p
    return total


@inner
def mask_row(
    sums: Any,
    to: Any,
    left: Any,
    stop: Any,
    first: Any,
    query: Any,
    bias: Any,
    mask: Any,
    asking: Any,
    stored: Any,
) -> None:
    """Bias, then masks, of one row; `first` is the position of the block's first key.

    bias and mask are planes (rows, columns) or have no rows; a row or column may stand for all.
    """
    at, n = to + left, stop - left
    if bias.shape[0] > 0:
        i = query if bias.shape[0] > 1 else 0
        if bias.shape[1] > 1:
            add(sums, at, bias[i], first + left, n)
        else:
            for j in range(n):
                sums[at + j] += bias[i, 0]
    if mask.shape[0] > 0:
        i = query if mask.shape[0] > 1 else 0
        if mask.shape[1] > 1:
            shut_masked(sums, at, mask[i], first + left, n)
        elif not mask[i, 0]:
            for j in range(n):
                sums[at + j] = -np.inf
    if asking.shape[0] > 0:
        shut_others(sums, at, asking[query], stored, first + left, n)


@inner
def close_row(
    sums: Any, to: Any, left: Any, right: Any, start: Any, stop: Any, factor: Any
) -> None:
    """Over the temperature, and -inf outside of columns start to stop."""
    if factor != 1.0:
        scale_row(sums, to + left, right - left, sums.dtype.type(factor))
    for j in range(left, min(start, right)):
        sums[to + j] = -np.inf
    for j in range(max(stop, left), right):
        sums[to + j] = -np.inf


@inner
def block_span(start: Any, stop: Any, block: Any) -> tuple[Any, Any]:
    """The columns of a block, in whole strips, that reach from key start to key stop."""
    first = block * BLOCK
    left = max(0, start - first) // STRIP * STRIP
    right = min(BLOCK, (stop - first + STRIP - 1) // STRIP * STRIP)
    return left, right
