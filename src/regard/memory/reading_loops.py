"""A softmax reading in one pass over keys and values; benchmarks/memory.py shows it beside a sum of their bytes.

A tile of rows stays in the first cache: it is scored, and its values are blended, while the next tile comes from
memory. The largest score so far is subtracted in the exponent; a larger one later scales what was summed up (Milakov
and Gimelshein 2018, arXiv 1805.02867, algorithm 3).
"""

from typing import Any

import numpy as np

from regard.loops.compiling import compiled, inner, inner_sum, lanes
from regard.loops.exponentials import exponential
from regard.loops.rows import peak_of
from regard.memory.row_loops import divided, dot, fetch, number

TILE = 16  # rows
SUMMED = 64  # rows whose values float32 sums up


@inner
def _add_four(blend: Any, weights: Any, place: Any, value: Any, row: Any) -> None:
    lanes()
    a, b, c, d = weights[place], weights[place + 1], weights[place + 2], weights[place + 3]
    for column in range(np.uint64(len(blend))):
        pair = a * number(value[row, column]) + b * number(value[row + 1, column])
        blend[column] += pair + (
            c * number(value[row + 2, column]) + d * number(value[row + 3, column])
        )


@inner
def _add(blend: Any, weight: Any, value: Any, row: Any) -> None:
    lanes()
    for column in range(np.uint64(len(blend))):
        blend[column] += weight * number(value[row, column])


@inner
def _join(blend: Any, later: Any, factor: Any) -> None:
    """blend = factor (blend + later); later, the blend of the latest rows, becomes 0."""
    lanes()
    for column in range(np.uint64(len(blend))):
        blend[column] = (blend[column] + np.float64(later[column])) * factor
        later[column] = 0


@inner_sum
def _weigh(scores: Any, base: Any) -> Any:
    """Scores become their exponentials; the sum of these."""
    lanes()
    total = np.float32(0)
    for row in range(np.uint64(len(scores))):
        is_excluded = scores[row] == -np.inf
        scores[row] = np.float32(0) if is_excluded else exponential(scores[row] - base)
        total += scores[row]
    return total


@compiled
def fold(
    query: Any,
    by_length: Any,
    keys: Any,
    values: Any,
    readable: Any,
    sums: Any,
    blend: Any,
    room: Any,
) -> None:
    """Add the part of these keys to a part.

    Args:
        query: (width,), float32.
        by_length: whether products are divided by the lengths of the keys.
        keys: (rows, width), float32, or bits of halves.
        values: (rows, d_value), likewise.
        readable: (rows,) which keys may be read; empty for all.
        sums: (2,), float64: the largest score, and the sum of exponentials.
        blend: (d_value,), float64.
        room: (TILE + d_value,), float32, zeros.
    """
    later = room[TILE:]
    for start in range(0, len(keys), TILE):
        begin, scores = np.uint64(start), room[: min(TILE, len(keys) - start)]
        count = np.uint64(len(scores))
        for row in range(count):
            # The processor itself does not look beyond the arithmetic of a tile.
            fetch(keys, begin + np.uint64(TILE) + row)
            fetch(values, begin + np.uint64(TILE) + row)
            product = dot(query, keys, begin + row)
            scores[row] = divided(product, keys, begin + row) if by_length else product
        if len(readable):
            for row in range(count):
                if not readable[begin + row]:
                    scores[row] = -np.inf
        peak = np.float64(peak_of(scores))
        if peak > sums[0]:  # what was summed up becomes relative to this score
            factor = np.exp(sums[0] - peak)
            _join(blend, later, factor)
            sums[0], sums[1] = peak, sums[1] * factor
        elif start % SUMMED == 0:
            _join(blend, later, 1.0)
        base = sums[0] if sums[0] > -np.inf else 0.0
        sums[1] += np.float64(_weigh(scores, np.float32(base)))
        place: Any = np.uint64(0)
        while place + np.uint64(4) <= count:
            _add_four(later, scores, place, values, begin + place)
            place += np.uint64(4)
        while place < count:
            _add(later, scores[place], values, begin + place)
            place += np.uint64(1)
    _join(blend, later, 1.0)
