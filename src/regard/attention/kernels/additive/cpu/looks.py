"""The scores of some queries for a look, which folds them into statistics: neither masked nor biased.

    score_ij = cap(sum_h w_h tanh(a_ih + c_jh)) / T

Pairs outside the span of keys that a tile of queries may read are not computed, and not written.
"""

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np
from torch import Tensor

from regard.attention.kernels.additive.cpu import calls
from regard.attention.kernels.additive.cpu.features import BLOCK, STRIDE
from regard.attention.kernels.additive.cpu.forward import load_tile
from regard.attention.kernels.additive.cpu.hidden import ROWS, sum_channels
from regard.attention.kernels.additive.cpu.layout import Buffers, Inputs, entry_of
from regard.attention.kernels.additive.cpu.rows import block_span, open_scores, reach
from regard.attention.kernels.additive.cpu.values import scale_row
from regard.attention.kernels.additive.requests import Rules, sides_of
from regard.attention.shapes import Shape
from regard.loops.compiling import compiled
from regard.loops.rows import copy
from regard.loops.threads import run, split


@compiled
def score_rows(
    start: int,
    stop: int,
    inputs: Inputs,
    buffers: Buffers,
    begin: int,
    end: int,
    left: int,
    right: int,
    place: int,
    columns: int,
    scores: Any,
) -> None:
    """Scores of tiles start to stop of queries begin to end, for keys left to right of each entry.

    `scores` is flat: (entries, end - begin, columns). The first of the keys has the column `place`.
    """
    rows, sums = end - begin, buffers.scores
    tiles = (rows + ROWS - 1) // ROWS
    for item in range(start, stop):
        index, query = item // tiles, begin + item % tiles * ROWS
        entry = entry_of(inputs, index)
        # A = e^(2a) of a tile; e^(2c) of all keys is in the entry.
        tile = load_tile(entry, buffers, query)
        low, high = reach(entry, query, min(tile.rows, end - query))
        low, high = max(low, left), min(high, right)
        for block in range(low // BLOCK, (high + BLOCK - 1) // BLOCK):
            span = block_span(entry, tile, low, high, block)
            n = span.right - span.left
            if n > 0:
                # sum_h w_h / (1 + A_ih C_jh) of the tile and 512 keys at most.
                sum_channels(sums, entry, tile, span, buffers.raw)
                key = max(span.begin + span.left, left)
                inside = min(span.begin + span.right, right) - key
                for row in range(min(tile.rows, end - query)):
                    # The score is sum_h w_h minus twice this; only keys of the window are kept.
                    at = row * STRIDE + span.left
                    open_scores(sums, at, n, entry.offset, entry.cap)
                    if entry.factor != 1.0:
                        scale_row(sums, at, n, sums.dtype.type(entry.factor))
                    to = (index * rows + query - begin + row) * columns + place + key - left
                    copy(scores, to, sums, row * STRIDE + key - span.begin, inside)


class PairScores:
    """The scores of any window of queries and keys, whose keys are prepared once.

    Args:
        a, c, w: the features of the queries and keys, and their weight.
        spans: the first key that each query may read and the one after the last; None for all.
        batch: the batch axes of the scores.
        cap: the bound of the scores; 0 for none.
        temperature: the divisor of the scores.
    """

    def __init__(
        self,
        a: Tensor,
        c: Tensor,
        w: Tensor,
        spans: tuple[Tensor, Tensor] | None,
        batch: Shape,
        cap: float,
        temperature: float,
    ) -> None:
        rules = Rules() if spans is None else Rules(*spans)
        sides = sides_of(a, c, w, c.new_empty(c.shape[-2], 0), None, rules)
        self._inputs = calls._inputs(sides, batch, cap, temperature, False)
        self._where = self._inputs.where.reshape(*batch, self._inputs.where.shape[-1])
        self._workers = calls._workers(self._inputs)
        calls._prepare(self._inputs, self._workers, False)
        self._buffers = [calls._buffers(self._inputs) for _ in range(self._workers)]

    def write(
        self, scores: Tensor, entries: tuple[slice, ...], rows: slice, runs: Sequence[range]
    ) -> None:
        """Fill (*entries, rows, keys of the runs), but for pairs that no query of a tile may read."""
        where = self._where[entries].reshape(-1, self._where.shape[-1])
        inputs = self._inputs._replace(where=np.ascontiguousarray(where))
        tiles = prod(scores.shape[:-2]) * -(-(rows.stop - rows.start) // ROWS)
        place, width, flat = 0, scores.shape[-1], scores.view(-1).numpy()
        for keys in runs:
            window = rows.start, rows.stop, keys.start, keys.stop, place, width, flat
            shares = zip(split(tiles, self._workers), self._buffers, strict=False)
            run([partial(score_rows, *share, inputs, own, *window) for share, own in shares])
            place += len(keys)
