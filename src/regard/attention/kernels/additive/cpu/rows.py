"""From sums over channels to scores and weights: cap, bias, mask, temperature, one row at a time."""

from typing import Any

import numpy as np

from regard.attention.kernels.additive.cpu.features import BLOCK, STRIP
from regard.attention.kernels.additive.cpu.layout import Span
from regard.attention.kernels.additive.cpu.values import scale_row
from regard.loops.compiling import inner, inner_sum, lanes, written_out
from regard.loops.exponentials import exponential
from regard.loops.rows import add


@inner
def open_scores(sums: Any, to: Any, n: Any, offset: Any, cap: Any) -> None:
    """score = sum w - 2 sum w r, or cap tanh(score / cap), in place."""
    lanes()
    s, two = np.uint64(to), sums.dtype.type(2)
    if cap == 0.0:
        for j in range(np.uint64(n)):
            sums[s + j] = offset - two * sums[s + j]
    else:
        for j in range(np.uint64(n)):
            x = np.float64(offset - two * sums[s + j]) / cap
            x = 20.0 if x > 20.0 else x
            x = -20.0 if x < -20.0 else x
            sums[s + j] = cap * (1.0 - 2.0 / (1.0 + exponential(2.0 * x)))


@inner
def shut_others(scores: Any, to: Any, own: Any, numbers: Any, at: Any, n: Any) -> None:
    """-inf where the number of a key is not the query's own."""
    lanes()
    s, d, never = np.uint64(to), np.uint64(at), scores.dtype.type(-np.inf)
    for j in range(np.uint64(n)):
        scores[s + j] = scores[s + j] if numbers[d + j] == own else never


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


@written_out
def mask_row(scores: Any, to: Any, entry: Any, span: Any, query: Any) -> None:
    """z = (score + bias) / T of one row, -inf where not readable.

    bias and mask are planes (rows, columns) or have no rows; a row or column may stand for all.
    """
    left, right, key = span.left, span.right, span.begin + span.left
    at, n = to + left, min(right, entry.keys - span.begin) - left
    bias, mask = entry.bias, entry.mask
    if bias.shape[0] > 0:
        i = query if bias.shape[0] > 1 else 0
        if bias.shape[1] > 1:
            add(scores, at, bias[i], key, n)
        else:
            for j in range(n):
                scores[at + j] += bias[i, 0]
    if mask.shape[0] > 0:
        i = query if mask.shape[0] > 1 else 0
        if mask.shape[1] > 1:
            shut_others(scores, at, np.uint8(1), mask[i], key, n)
        elif not mask[i, 0]:
            scores[at : at + n] = -np.inf
    if entry.asking.shape[0] > 0:
        shut_others(scores, at, entry.asking[query], entry.stored, key, n)
    if entry.factor != 1.0:
        scale_row(scores, at, right - left, scores.dtype.type(entry.factor))
    start, stop = entry.low[query] - span.begin, entry.high[query] - span.begin
    for j in range(left, min(start, right)):
        scores[to + j] = -np.inf
    for j in range(max(stop, left), right):
        scores[to + j] = -np.inf


@inner
def block_span(entry: Any, tile: Any, start: Any, stop: Any, block: Any) -> Any:
    """The strips of a block, between key start and key stop, from the first to the last that the tile reads."""
    begin, strips = block * BLOCK, 0
    left = max(0, start - begin) // STRIP * STRIP
    right = min(BLOCK, (stop - begin + STRIP - 1) // STRIP * STRIP)
    for column in range(left, right, STRIP):
        if is_read(entry, tile, begin + column):
            strips |= 1 << column // STRIP
    while left < right and not strips >> left // STRIP & 1:
        left += STRIP
    while left < right and not strips >> (right // STRIP - 1) & 1:
        right -= STRIP
    return Span(begin, left, right, strips)


@inner
def is_read(entry: Any, tile: Any, first: Any) -> Any:
    """Whether booleans let a query of the tile read a key of a strip; so they do where there are none."""
    mask, stop = entry.mask, min(first + STRIP, entry.keys)
    if mask.shape[0] == 0 or mask.shape[1] == 1:
        return True
    for row in range(tile.rows if mask.shape[0] > 1 else 1):
        i = tile.first + row if mask.shape[0] > 1 else 0
        for j in range(first, stop):
            if mask[i, j]:
                return True
    return False


@written_out
def reach(entry: Any, first: Any, rows: Any) -> Any:
    """The keys that at least one of these queries may read: the first, and the one after the last."""
    begin, end = entry.low[first], entry.high[first]
    for row in range(first + 1, first + rows):
        begin, end = min(begin, entry.low[row]), max(end, entry.high[row])
    return begin, end
