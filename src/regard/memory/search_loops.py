"""The best few rows for each query, and the sum of all exponentials, in one pass over the rows: a third to two thirds
of the time of torch's operations (benchmarks/memory.py)."""

from typing import Any

import numpy as np

from regard.loops.compiling import compiled, inner
from regard.loops.rows import exponential_sum, insert, peak_of
from regard.memory.row_loops import divided, dot

APART = 4  # rows that are read in turns, from parts of the memory that the processor fetches at the same time
SUMMED = 2048  # exponentials that float32 sums up
NEAR = (
    2.0**-11
)  # more than two orders of summation differ, relative to the lengths of a query and a row


@inner
def _score(query: Any, by_length: Any, rows: Any, row: Any) -> Any:
    product = dot(query, rows, row)
    return divided(product, rows, row) if by_length else product


@inner
def _score_all(queries: Any, by_length: Any, rows: Any, row: Any, scores: Any) -> None:
    for i in range(np.uint64(len(queries))):
        scores[i, row] = _score(queries[i], by_length, rows, row)


@compiled
def score(queries: Any, by_length: Any, rows: Any, scores: Any) -> None:
    """scores[i, j] = query_i . row_j

    Args:
        queries: (queries, width), float32.
        by_length: whether products are divided by the lengths of the rows.
        rows: (rows, width), float32, or bits of halves.
        scores: (queries, rows), float32, written to.
    """
    apart: Any = np.uint64(len(rows) // APART)
    for place in range(apart):
        for stream in range(np.uint64(APART)):
            _score_all(queries, by_length, rows, place + stream * apart, scores)
    for place in range(apart * np.uint64(APART), np.uint64(len(rows))):
        _score_all(queries, by_length, rows, place, scores)


@compiled
def collect(
    queries: Any,
    by_length: Any,
    rows: Any,
    start: Any,
    scores: Any,
    sums: Any,
    best: Any,
    places: Any,
    spare: Any,
) -> None:
    """Take the scores of some rows into the sums and the best few.

    A product of matrices sums in another order at the end of a matrix than inside. So the score of a row that may be
    among the best is computed again: equal rows have equal scores, and the first of them comes first.

    Args:
        queries, by_length, rows: as for `score`.
        start: the place of the first row.
        scores: (queries, rows), float32; -inf excludes a row.
        sums: (queries, 2), float64: the largest score, and the sum of exponentials.
        best: (queries, few), float32: the best scores in their order; -inf where there are fewer.
        places: their places.
        spare: (queries,), float32: how far a score may be off.
    """
    for i in range(np.uint64(len(queries))):
        line = scores[i]
        peak = peak_of(line)
        if peak == -np.inf:
            sums[i, 1] += exponential_sum(line, np.float32(0))  # NaN where scores are, or next to 0
            continue
        if peak > sums[i, 0]:
            sums[i, 1] *= np.exp(sums[i, 0] - peak)
            sums[i, 0] = peak
        for begin in range(0, len(line), SUMMED):
            sums[i, 1] += exponential_sum(line[begin : begin + SUMMED], np.float32(sums[i, 0]))
        if not peak > best[i, -1] - spare[i]:
            continue
        length = np.sqrt(dot(queries[i], queries, i))
        for row in range(np.uint64(len(line))):
            if line[row] > best[i, -1] - spare[i]:
                value = _score(queries[i], by_length, rows, row)
                if value > best[i, -1]:
                    insert(best[i], places[i], value, start + row)
                    size = np.float32(1) if by_length else np.sqrt(dot(rows[row], rows, row))
                    spare[i] = max(spare[i], np.float32(NEAR) * length * size)
