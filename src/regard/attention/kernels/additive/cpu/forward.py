"""The reading, tile by tile of queries: an online softmax over blocks of keys.

    peak = max_j z_j,  total = sum_j e^(z_j - peak),  reading = sum_j e^(z_j - peak) v_j / total

Source: Milakov and Gimelshein 2018, arXiv 1805.02867, algorithm 3.
"""

from typing import Any

import numpy as np

from regard.attention.kernels.additive.cpu.features import (
    BLOCK,
    STRIDE,
    row_of_exponentials,
    spread_keys,
)
from regard.attention.kernels.additive.cpu.hidden import ROWS, sum_channels
from regard.attention.kernels.additive.cpu.layout import Buffers, Inputs, Tile, entry_of
from regard.attention.kernels.additive.cpu.rows import (
    block_span,
    mask_row,
    open_scores,
    reach,
    weigh,
)
from regard.attention.kernels.additive.cpu.values import blend, scale_row, turn_values
from regard.loops.compiling import compiled, written_out
from regard.loops.rows import clear, copy, largest, multiply


@compiled
def prepare_keys(first: int, last: int, inputs: Inputs, rows: Any) -> None:
    """The exponentials of the keys of entries first to last."""
    p, padded = inputs.all, inputs.all.weights.shape[1]
    for entry in range(first, last):
        powers, top = p.powers[entry], p.top[entry]
        spread_keys(p.c[entry], p.keys, p.hidden, padded, powers, top, rows)


@compiled
def prepare_values(first: int, last: int, inputs: Inputs, rows: Any) -> None:
    """Turn the values of entries first to last."""
    p, wide = inputs.all, (inputs.all.width + 7) // 8 * 8
    for entry in range(first, last):
        turn_values(p.v[entry], p.keys, p.width, wide, p.turned[entry], rows)


@written_out
def load_tile(entry: Any, buffers: Any, first: Any) -> Any:
    """The tile that begins at a query: A, a and A g / w; channels beyond the hidden ones stay 0."""
    rows, hidden, padded = min(ROWS, entry.queries - first), entry.hidden, entry.weights.shape[0]
    powers, plain, scaled = buffers.powers, buffers.plain, buffers.scaled
    clear(scaled, rows * padded, (ROWS - rows) * padded)
    for row in range(rows):
        to, at = row * padded, (first + row) * hidden
        row_of_exponentials(entry.a, at, hidden, powers, to)
        copy(plain, to, entry.a, at, hidden)
        multiply(scaled, to, powers, entry.ratios, padded)
    return Tile(first, rows, powers, plain, scaled)


@written_out
def score_tile(entry: Any, buffers: Any, tile: Any, span: Any) -> None:
    """z = (cap(score) + bias) / T of a tile against some keys, -inf where not readable.

    `kept` gets the capped scores, where there is room.
    """
    scores, kept, left, n = buffers.scores, buffers.kept, span.left, span.right - span.left
    sum_channels(scores, entry, tile, span, buffers.raw)
    for row in range(tile.rows):
        to = row * STRIDE
        open_scores(scores, to + left, n, entry.offset, entry.cap)
        if kept.shape[0] > 0:
            copy(kept, to + left, scores, to + left, n)
        mask_row(scores, to, entry, span, tile.first + row)


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
def read_tile(entry: Any, buffers: Any, tile: Any) -> None:
    """Write the reading, peak and total of a tile to the buffers; the reading is not divided yet."""
    width = entry.width
    clear(buffers.reading, 0, buffers.reading.size)
    for row in range(ROWS):
        buffers.peak[row], buffers.total[row] = -np.inf, 0
    begin, end = reach(entry, tile.first, tile.rows)
    for block in range(begin // BLOCK, (end + BLOCK - 1) // BLOCK):
        span = block_span(entry, tile, begin, end, block)
        left, n, key = span.left, span.right - span.left, span.begin + span.left
        if n > 0:
            score_tile(entry, buffers, tile, span)
            fold_in(buffers, tile.rows, left, n, width)
            inside, at = min(n, entry.keys - key), key * width
            blend(buffers.reading, buffers.scores, left, inside, entry.v, at, width)


@compiled
def forward(
    start: int, stop: int, inputs: Inputs, buffers: Buffers, out: Any, peaks: Any, totals: Any
) -> None:
    """Readings, peaks and totals of tiles start to stop, counted through the whole batch."""
    width, tiles = inputs.all.width, (inputs.all.queries + ROWS - 1) // ROWS
    one, zero = out.dtype.type(1), out.dtype.type(0)
    for item in range(start, stop):
        index = item // tiles
        entry = entry_of(inputs, index)
        tile = load_tile(entry, buffers, item % tiles * ROWS)
        read_tile(entry, buffers, tile)
        for row in range(tile.rows):
            query, total = tile.first + row, buffers.total[row]
            peaks[index, query] = buffers.peak[row]
            totals[index, query] = total
            inverse = one / total if total != zero else zero
            scale_row(buffers.reading, row * width, width, inverse)
            copy(out[index], query * width, buffers.reading, row * width, width)
