"""The reading, tile by tile of queries: an online softmax over blocks of keys.

    peak = max_j z_j,  total = sum_j e^(z_j - peak),  reading = sum_j e^(z_j - peak) v_j / total

Source: Milakov and Gimelshein 2018, arXiv 1805.02867, algorithm 3.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from regard.attention.kernels.cpu.exponentials import (
    BLOCK,
    GROUP,
    STRIDE,
    STRIP,
    clear,
    middles,
    row_of_exponentials,
    spread_keys,
)
from regard.attention.kernels.cpu.hidden import ROWS, sum_channels
from regard.attention.kernels.cpu.machine import compiled, inner, scratch
from regard.attention.kernels.cpu.rows import (
    block_span,
    close_row,
    largest,
    mask_row,
    open_scores,
    weigh,
)
from regard.attention.kernels.cpu.values import blend, scale_row, turn_values

# What each entry of a batch reads, by columns of `where`.
A, C, W, V, SPAN, BIAS, MASK, ASKING, STORED = range(9)


@compiled
def prepare(
    first: int,
    last: int,
    c: Any,
    keys: int,
    hidden: int,
    padded: int,
    middle: Any,
    spread: Any,
    top: Any,
) -> None:
    """Exponentials of the keys, for entries first to last."""
    for entry in range(first, last):
        middles(c[entry], keys, hidden, middle[entry])
        spread_keys(c[entry], keys, hidden, padded, middle[entry], spread[entry], top[entry])


@compiled
def prepare_values(
    first: int, last: int, v: Any, keys: int, width: int, padded: int, turned: Any
) -> None:
    for entry in range(first, last):
        turn_values(v[entry], keys, width, padded, turned[entry])


@inner
def load_tile(
    a: Any, first: Any, rows: Any, hidden: Any, padded: Any, middle: Any, powers: Any, plain: Any
) -> None:
    """A and a of a tile's queries, zeros beyond."""
    clear(powers, 0, powers.size)
    clear(plain, 0, plain.size)
    for row in range(rows):
        row_of_exponentials(a, (first + row) * hidden, hidden, middle, 1.0, powers, row * padded)
        for h in range(hidden):
            plain[row * padded + h] = a[(first + row) * hidden + h]


@inner
def score_tile(
    scores: Any,
    rows: Any,
    first: Any,
    block: Any,
    left: Any,
    right: Any,
    powers: Any,
    plain: Any,
    spread: Any,
    top: Any,
    c: Any,
    w: Any,
    scales: Any,
    total: Any,
    low: Any,
    high: Any,
    bias: Any,
    mask: Any,
    asking: Any,
    stored: Any,
    keys: Any,
    hidden: Any,
    padded: Any,
    cap: Any,
    factor: Any,
    limit: Any,
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
        spread,
        top,
        c,
        keys,
        hidden,
        padded,
        w,
        scales,
        limit,
        block,
        left,
        right,
        raw,
    )
    begin = block * BLOCK
    inside = min(right, keys - begin)
    for row in range(rows):
        query, to = first + row, row * STRIDE
        open_scores(scores, to + left, right - left, total, cap)
        if kept.shape[0] > 1:
            for j in range(left, right):
                kept[to + j] = scores[to + j]
        mask_row(scores, to, left, inside, begin, query, bias, mask, asking, stored)
        close_row(scores, to, left, right, low[query] - begin, high[query] - begin, factor)


@compiled
def forward(
    start: int,
    stop: int,
    where: Any,
    a: Any,
    c: Any,
    w: Any,
    scales: Any,
    sums: Any,
    v: Any,
    middle: Any,
    spread: Any,
    top: Any,
    low: Any,
    high: Any,
    bias: Any,
    mask: Any,
    asking: Any,
    stored: Any,
    keys: int,
    hidden: int,
    width: int,
    cap: float,
    factor: float,
    limit: Any,
    out: Any,
    peaks: Any,
    totals: Any,
) -> None:
    """Readings, peaks and totals of tiles start to stop, counted through the whole batch."""
    queries, padded = peaks.shape[1], w.shape[1]
    tiles = (queries + ROWS - 1) // ROWS
    dtype = out.dtype
    scores, raw = scratch(ROWS * STRIDE, out), scratch(GROUP * STRIDE, out)
    powers, plain = scratch(ROWS * padded, out), scratch(ROWS * padded, out)
    best, kept = scratch(STRIP, out), scratch(1, out)
    peak, total = scratch(ROWS, out), scratch(ROWS, out)
    reading = scratch(ROWS * width, out)
    one, never = dtype.type(1), dtype.type(-np.inf)
    for item in range(start, stop):
        entry, first = item // tiles, item % tiles * ROWS
        at = where[entry]
        rows = min(ROWS, queries - first)
        ours, theirs = low[at[SPAN]], high[at[SPAN]]
        begin, end = ours[first], theirs[first]
        for row in range(1, rows):
            begin, end = min(begin, ours[first + row]), max(end, theirs[first + row])
        load_tile(a[at[A]], first, rows, hidden, padded, middle[at[C]], powers, plain)
        clear(reading, 0, reading.size)
        for row in range(ROWS):
            peak[row], total[row] = never, 0
        for block in range(begin // BLOCK, (end + BLOCK - 1) // BLOCK):
            left, right = block_span(begin, end, block)
            if right <= left:
                continue
            score_tile(
                scores,
                rows,
                first,
                block,
                left,
                right,
                powers,
                plain,
                spread[at[C]],
                top[at[C]],
                c[at[C]],
                w[at[W]],
                scales[at[W]],
                sums[at[W]],
                ours,
                theirs,
                bias[at[BIAS]],
                mask[at[MASK]],
                asking[at[ASKING]],
                stored[at[STORED]],
                keys,
                hidden,
                padded,
                cap,
                factor,
                limit,
                raw,
                kept,
            )
            for row in range(rows):
                to = row * STRIDE + left
                most = largest(scores, to, right - left, best)
                if most > peak[row]:
                    shrink = np.exp(peak[row] - most)
                    peak[row] = most
                    total[row] *= shrink
                    scale_row(reading, row * width, width, shrink)
                total[row] += weigh(scores, to, right - left, peak[row], one)
            inside = min(right, keys - block * BLOCK) - left
            blend(
                reading,
                scores,
                rows,
                left,
                inside,
                v[at[V]],
                (block * BLOCK + left) * width,
                width,
            )
        for row in range(rows):
            peaks[entry, first + row] = peak[row]
            totals[entry, first + row] = total[row]
            inverse = one / total[row] if total[row] != 0 else dtype.type(0)
            for d in range(width):
                out[entry, (first + row) * width + d] = reading[row * width + d] * inverse
