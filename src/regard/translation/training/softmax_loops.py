"""Softmax and smoothed cross-entropy over the words of a vocabulary, as compiled loops."""

from __future__ import annotations

from typing import Any

import numpy as np

from regard.loops.compiling import compiled, inner, inner_sum, lanes
from regard.loops.exponentials import exponential
from regard.loops.rows import largest
from regard.loops.vectors import width_of

# Sums of so many numbers in float32, of those sums in float64.
STRETCH = 1024


@compiled
def to_gradients(
    first: int,
    last: int,
    logits: Any,
    vocabulary: int,
    targets: Any,
    smoothing: float,
    losses: Any,
) -> None:
    """Logits of rows first to last become gradients of the loss: p - (1 - s) [v = y] - s / V."""
    spread = smoothing / vocabulary
    for row in range(first, last):
        at = row * vocabulary
        peak = highest(logits, at, vocabulary)
        target = logits[at + targets[row]] - peak
        total, plain = 0.0, 0.0
        for start in range(0, vocabulary, STRETCH):
            n = np.uint64(min(STRETCH, vocabulary - start))
            plain += sum_of(logits, np.uint64(at + start), n, peak)
            exponentials(logits, np.uint64(at + start), n, peak)
            total += sum_of(logits, np.uint64(at + start), n, np.float32(0))
        losses[row] = np.log(total) - (1 - smoothing) * target - spread * plain
        factor, less = np.float32(1 / total), np.float32(spread)
        finish(logits, np.uint64(at), np.uint64(vocabulary), factor, less)
        logits[at + targets[row]] -= np.float32(1 - smoothing)


@inner
def highest(row: Any, at: Any, n: Any) -> Any:
    whole = n - n % width_of(row)
    peak = largest(row, at, whole) if whole else row[at]
    for j in range(at + whole, at + n):
        x = row[np.uint64(j)]
        peak = x if x > peak else peak
    return peak


@inner_sum
def sum_of(row: Any, at: Any, n: Any, less: Any) -> Any:
    lanes()
    total = np.float32(0)
    for j in range(n):
        total += row[at + j] - less
    return total


@inner
def exponentials(row: Any, at: Any, n: Any, peak: Any) -> None:
    lanes()
    for j in range(n):
        row[at + j] = exponential(row[at + j] - peak)


@inner
def finish(row: Any, at: Any, n: Any, factor: Any, less: Any) -> None:
    lanes()
    for j in range(n):
        row[at + j] = row[at + j] * factor - less
