"""A softmax reading in one pass over keys and values, as fast as a sum of their bytes (benchmarks/memory.py).

A tile of rows stays in the first cache: it is scored, and its values are blended. The largest score so far is
subtracted in the exponent; a larger one later scales what was summed up (Milakov and Gimelshein 2018, arXiv 1805.02867,
algorithm 3).
"""

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types

from regard.loops.compiling import compiled, has, inner, inner_sum, lanes
from regard.loops.exponentials import exponential
from regard.loops.vectors import llvm_function

TILE = 16  # rows
HALVES_ARE_READ = has("f16c") or has("neon")  # in one instruction; elsewhere torch widens them
SHORTEST = 1e-12  # the length of a key that has cosine 0 with everything


@llvm_function
def _of_half(context: Any, bits: Any) -> Any:
    """The number that the bits of a float16 stand for."""

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fpext(builder.bitcast(arguments[0], ir.HalfType()), ir.FloatType())

    return types.float32(types.uint16), lower


@inner_sum
def _dot(vector: Any, rows: Any, row: Any) -> Any:
    lanes()
    total = np.float32(0)
    for column in range(np.uint64(len(vector))):
        total += vector[column] * rows[row, column]
    return total


@inner_sum
def _widened_dot(vector: Any, halves: Any, row: Any, wide: Any, place: Any) -> Any:
    """The product with a row of float16, whose numbers are written to a row of `wide`."""
    lanes()
    total = np.float32(0)
    for column in range(np.uint64(len(vector))):
        number = _of_half(halves[row, column])
        wide[place, column] = number
        total += vector[column] * number
    return total


@inner
def _widen(halves: Any, row: Any, wide: Any, place: Any) -> None:
    lanes()
    for column in range(np.uint64(wide.shape[1])):
        wide[place, column] = _of_half(halves[row, column])


@inner
def _divide_by_lengths(scores: Any, key: Any, begin: Any) -> None:
    for place in range(np.uint64(len(scores))):
        length = np.sqrt(_dot(key[begin + place], key, begin + place))
        scores[place] = scores[place] / length if length >= SHORTEST else np.float32(0)


@inner
def _add_four(blend: Any, weights: Any, place: Any, value: Any, row: Any) -> None:
    lanes()
    a, b, c, d = weights[place], weights[place + 1], weights[place + 2], weights[place + 3]
    for column in range(np.uint64(len(blend))):
        pair = a * value[row, column] + b * value[row + 1, column]
        blend[column] += pair + (c * value[row + 2, column] + d * value[row + 3, column])


@inner
def _add(blend: Any, weight: Any, value: Any, row: Any) -> None:
    lanes()
    for column in range(np.uint64(len(blend))):
        blend[column] += weight * value[row, column]


@inner
def _join(blend: Any, factor: Any, later: Any) -> None:
    """blend = factor blend + later, the blend of the present tile, which becomes 0."""
    lanes()
    for column in range(np.uint64(len(blend))):
        blend[column] = blend[column] * factor + np.float64(later[column])
        later[column] = 0


@inner
def _blend(scores: Any, value: Any, begin: Any, later: Any, sums: Any, blend: Any) -> None:
    """Add the part of these scores, and of the values from `begin` on."""
    count = np.uint64(len(scores))
    highest = sums[0]
    for row in range(count):
        highest = max(highest, np.float64(scores[row]))
    base = highest if highest > -np.inf else 0.0
    total = 0.0
    for row in range(count):
        score = scores[row]
        is_excluded = score == -np.inf
        scores[row] = 0 if is_excluded else exponential(score - np.float32(base))
        total += np.float64(scores[row])
    place: Any = np.uint64(0)
    while place + np.uint64(4) <= count:
        _add_four(later, scores, place, value, begin + place)
        place += np.uint64(4)
    while place < count:
        _add(later, scores[place], value, begin + place)
        place += np.uint64(1)
    factor = np.exp(sums[0] - base)
    sums[0], sums[1] = highest, sums[1] * factor + total
    _join(blend, factor, later)


@inner
def _exclude(scores: Any, readable: Any, start: Any) -> None:
    for row in range(min(len(scores), len(readable))):
        if not readable[start + row]:
            scores[row] = -np.inf


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
        keys: (rows, width), float32.
        values: (rows, d_value), float32.
        readable: (rows,) which keys may be read; empty for all.
        sums: (2,), float64: the largest score, and the sum of exponentials.
        blend: (d_value,), float64.
        room: (TILE + d_value,), float32, zeros.
    """
    later = room[TILE:]
    for start in range(0, len(keys), TILE):
        begin, scores = np.uint64(start), room[: min(TILE, len(keys) - start)]
        for place in range(np.uint64(len(scores))):
            scores[place] = _dot(query, keys, begin + place)
        if by_length:
            _divide_by_lengths(scores, keys, begin)
        _exclude(scores, readable, start)
        _blend(scores, values, begin, later, sums, blend)


@compiled
def fold_halves(
    query: Any,
    by_length: Any,
    keys: Any,
    values: Any,
    readable: Any,
    sums: Any,
    blend: Any,
    room: Any,
    wide_key: Any,
    wide_value: Any,
) -> None:
    """The same for the bits of float16, as uint16.

    Args:
        values: without rows where they are the keys.
        wide_key, wide_value: (TILE, width), float32, for the numbers of a tile.
    """
    later = room[TILE:]
    for start in range(0, len(keys), TILE):
        begin, scores = np.uint64(0), room[: min(TILE, len(keys) - start)]
        for place in range(np.uint64(len(scores))):
            scores[place] = _widened_dot(query, keys, np.uint64(start) + place, wide_key, place)
        if by_length:
            _divide_by_lengths(scores, wide_key, begin)
        _exclude(scores, readable, start)
        if len(values):
            for place in range(np.uint64(len(scores))):
                _widen(values, np.uint64(start) + place, wide_value, place)
            _blend(scores, wide_value, begin, later, sums, blend)
        else:
            _blend(scores, wide_key, begin, later, sums, blend)
