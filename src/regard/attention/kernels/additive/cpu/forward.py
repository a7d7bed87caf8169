"""The reading, tile by tile of queries: an online softmax over blocks of keys.

    peak = max_j z_j,  total = sum_j e^(z_j - peak),  reading = sum_j e^(z_j - peak) v_j / total

Source: Milakov and Gimelshein 2018, arXiv 1805.02867, algorithm 3.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from regard.attention.kernels.additive.cpu.features import (
    BLOCK,
    STRIDE,
    middles,
    raise_to,
    row_of_exponentials,
    spread_keys,
)
from regard.attention.kernels.additive.cpu.hidden import ROWS, sum_channels
from regard.attention.kernels.additive.cpu.rows import (
    block_span,
    close_row,
    mask_row,
    open_scores,
    weigh,
)
from regard.attention.kernels.additive.cpu.values import blend, scale_row, turn_values
from regard.loops.compiling import compiled, written_out
from regard.loops.rows import clear, copy, largest, multiply

# The columns of `where`: the index of each array that an entry of the batch reads.
A, C, W, V, SPAN, BIAS, MASK, ASKING, STORED = range(9)


class Inputs(NamedTuple):
    """The inputs of a call; arrays have their entries first, the other axes flattened."""

    where: Any
    a: Any
    c: Any
    w: Any
    ratios: Any  # divisors of the weights; see groups.py
    turns: Any
    sums: Any  # the sum of all weights
    v: Any
    low: Any
    high: Any
    bias: Any
    mask: Any
    asking: Any
    stored: Any
    keys: int
    hidden: int
    width: int
    cap: float
    factor: float
    ceiling: Any  # of a product of four t


class Spread(NamedTuple):
    """The keys' exponentials, of every entry, or room for the one entry that a worker is at."""

    ready: int  # 1 for the first
    middle: Any
    powers: Any
    top: Any
    turned: Any  # the values, only for gradients
    strip: Any


class ForwardBuffers(NamedTuple):
    """Where one worker writes a tile down."""

    scores: Any
    raw: Any
    kept: Any
    powers: Any
    plain: Any
    scaled: Any
    peak: Any
    total: Any
    reading: Any


@written_out
def fill(inputs: Any, spread: Any, key: Any, place: Any) -> None:
    """Spread the keys of one entry, at a place."""
    keys, hidden, padded = inputs.keys, inputs.hidden, inputs.w.shape[1]
    c, middle = inputs.c[key], spread.middle[place]
    middles(c, keys, hidden, middle, spread.strip)
    powers, top = spread.powers[place], spread.top[place]
    spread_keys(c, keys, hidden, padded, middle, powers, top, spread.strip)


@written_out
def fill_values(inputs: Any, spread: Any, value: Any, place: Any) -> None:
    width = inputs.width
    wide = (width + 7) // 8 * 8
    turn_values(inputs.v[value], inputs.keys, width, wide, spread.turned[place], spread.strip)


@compiled
def prepare(first: int, last: int, inputs: Inputs, spread: Spread) -> None:
    """Fill the places of entries first to last."""
    for entry in range(first, last):
        fill(inputs, spread, entry, entry)


@compiled
def prepare_values(first: int, last: int, inputs: Inputs, spread: Spread) -> None:
    """Turn the values of entries first to last."""
    for entry in range(first, last):
        fill_values(inputs, spread, entry, entry)


@written_out
def load_tile(
    inputs: Any,
    at: Any,
    first: Any,
    rows: Any,
    middle: Any,
    powers: Any,
    plain: Any,
    scaled: Any,
) -> None:
    """A, a and A g / w of a tile's queries, zeros beyond, and the largest A of each channel."""
    a, hidden, padded = inputs.a[at[A]], inputs.hidden, inputs.w.shape[1]
    clear(powers, 0, powers.size)
    clear(plain, 0, plain.size)
    clear(scaled, 0, scaled.size)
    for row in range(rows):
        to = row * padded
        row_of_exponentials(a, (first + row) * hidden, hidden, middle, 1.0, powers, to)
        copy(plain, to, a, (first + row) * hidden, hidden)
        multiply(scaled, to, powers, inputs.ratios[at[W]], padded)
        raise_to(powers, ROWS * padded, powers, to, padded)


@written_out
def score_tile(
    inputs: Any,
    spread: Any,
    at: Any,
    place: Any,
    first: Any,
    rows: Any,
    block: Any,
    left: Any,
    right: Any,
    powers: Any,
    plain: Any,
    scaled: Any,
    scores: Any,
    raw: Any,
    kept: Any,
) -> None:
    """z = (cap(score) + bias) / T of a tile against a block, -inf where not readable.

    `kept` gets the capped scores, where there is room.
    """
    sum_channels(
        scores,
        rows,
        powers,
        plain,
        scaled,
        spread.powers[place],
        spread.top[place],
        inputs.c[at[C]],
        inputs.keys,
        inputs.hidden,
        inputs.w.shape[1],
        inputs.w[at[W]],
        inputs.ratios[at[W]],
        inputs.turns[at[W]],
        block,
        left,
        right,
        raw,
    )
    begin = block * BLOCK
    inside = min(right, inputs.keys - begin)
    low, high = inputs.low[at[SPAN]], inputs.high[at[SPAN]]
    for row in range(rows):
        query, to = first + row, row * STRIDE
        open_scores(scores, to + left, right - left, inputs.sums[at[W]], inputs.cap)
        if kept.shape[0] > 1:
            for j in range(left, right):
                kept[to + j] = scores[to + j]
        mask_row(
            scores,
            to,
            left,
            inside,
            begin,
            query,
            inputs.bias[at[BIAS]],
            inputs.mask[at[MASK]],
            inputs.asking[at[ASKING]],
            inputs.stored[at[STORED]],
        )
        start, stop = low[query] - begin, high[query] - begin
        close_row(scores, to, left, right, start, stop, inputs.factor)


@written_out
def reach(low: Any, high: Any, first: Any, rows: Any) -> Any:
    """The span of keys that at least one of these queries may read."""
    begin, end = low[first], high[first]
    for row in range(1, rows):
        begin, end = min(begin, low[first + row]), max(end, high[first + row])
    return begin, end


@written_out
def fold_in(buffers: Any, rows: Any, left: Any, n: Any, width: Any) -> None:
    """Turn scores into weights relative to the peak so far, and rescale the earlier sums to it."""
    one = buffers.total.dtype.type(1)
    for row in range(rows):
        to = row * STRIDE + left
        peak = largest(buffers.scores, to, n)
        if peak > buffers.peak[row]:
            shrink = np.exp(buffers.peak[row] - peak)
            buffers.peak[row] = peak
            buffers.total[row] *= shrink
            scale_row(buffers.reading, row * width, width, shrink)
        buffers.total[row] += weigh(buffers.scores, to, n, buffers.peak[row], one)


@written_out
def read_tile(
    inputs: Any, spread: Any, buffers: Any, at: Any, place: Any, first: Any, rows: Any
) -> None:
    """Write the reading, peak and total of a tile to the buffers; the reading is not divided yet."""
    keys, width = inputs.keys, inputs.width
    middle = spread.middle[place]
    load_tile(inputs, at, first, rows, middle, buffers.powers, buffers.plain, buffers.scaled)
    clear(buffers.reading, 0, buffers.reading.size)
    for row in range(ROWS):
        buffers.peak[row], buffers.total[row] = -np.inf, 0
    begin, end = reach(inputs.low[at[SPAN]], inputs.high[at[SPAN]], first, rows)
    for block in range(begin // BLOCK, (end + BLOCK - 1) // BLOCK):
        left, right = block_span(begin, end, block)
        if right <= left:
            continue
        score_tile(
            inputs,
            spread,
            at,
            place,
            first,
            rows,
            block,
            left,
            right,
            buffers.powers,
            buffers.plain,
            buffers.scaled,
            buffers.scores,
            buffers.raw,
            buffers.kept,
        )
        fold_in(buffers, rows, left, right - left, width)
        start = block * BLOCK + left
        inside = min(right - left, keys - start)
        blend(buffers.reading, buffers.scores, left, inside, inputs.v[at[V]], start * width, width)


@written_out
def tiles(
    start: Any,
    stop: Any,
    inputs: Any,
    spread: Any,
    buffers: Any,
    out: Any,
    peaks: Any,
    totals: Any,
) -> None:
    queries, width, current = peaks.shape[1], inputs.width, -1
    count = (queries + ROWS - 1) // ROWS
    one, zero = out.dtype.type(1), out.dtype.type(0)
    for item in range(start, stop):
        entry, first = item // count, item % count * ROWS
        rows, at = min(ROWS, queries - first), inputs.where[entry]
        place = at[C] if spread.ready else 0
        if not spread.ready and at[C] != current:
            current = at[C]
            fill(inputs, spread, current, 0)
        read_tile(inputs, spread, buffers, at, place, first, rows)
        for row in range(rows):
            total = buffers.total[row]
            peaks[entry, first + row] = buffers.peak[row]
            totals[entry, first + row] = total
            inverse = one / total if total != zero else zero
            scale_row(buffers.reading, row * width, width, inverse)
            copy(out[entry], (first + row) * width, buffers.reading, row * width, width)


@compiled
def forward(
    start: int,
    stop: int,
    inputs: Inputs,
    spread: Spread,
    buffers: ForwardBuffers,
    out: Any,
    peaks: Any,
    totals: Any,
) -> None:
    """Readings, peaks and totals of tiles start to stop, counted through the whole batch."""
    tiles(start, stop, inputs, spread, buffers, out, peaks, totals)
