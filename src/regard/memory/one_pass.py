"""Readings and searches by compiled loops, which take keys and values from memory once."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.attention.normalisers import Softmax
from regard.attention.parts import Part
from regard.attention.scores import Score
from regard.attention.scores.score import SHORTEST
from regard.loops.availability import are_compiled, has_numbers
from regard.loops.preparing import Preparation
from regard.loops.threads import run
from regard.memory.bounded import Linear

LOOPS = Preparation("regard.memory.preparation")
FEW = 4  # queries; a matrix product of more takes less time
SCORES = 1 << 17  # that a search holds: they stay in the caches
MOST = 64  # entries that a search keeps in their order

Span = tuple[int, int]  # the first row of a block, and the one after its last
Read = Callable[[Span], tuple[np.ndarray, np.ndarray]]


def form_of(score: Score, query: Tensor, key: Tensor, normaliser: Any) -> Linear | None:
    """The scores of queries as the loops compute them; None where these do not serve, or are being compiled.

    Args:
        score: theirs with keys.
        query: (*batch, queries, width).
        key: the keys, or some of their precision and width.
        normaliser: scores to weights.
    """
    if not (has_numbers(query) and has_numbers(key)):
        return None
    is_served = type(normaliser) is Softmax and key.dim() == 2 and are_compiled()
    if not is_served or torch.float64 in (query.dtype, key.dtype):
        return None
    rows = query.detach().double().flatten(0, -2)
    form = Linear.of(score, rows, key.shape[-1], normaliser.temperature)
    if form is None or form.cap or not form.query.isfinite().all():
        return None
    if torch.are_deterministic_algorithms_enabled():
        LOOPS.wait()
    return form if LOOPS.ready() else None


def block_rows(queries: int) -> int:
    """How many entries are compared together with so many queries."""
    return max(1024, SCORES // max(FEW, queries))


def part_of(
    form: Linear,
    spans: Sequence[Span],
    readers: Callable[[], Read],
    d_value: int,
    readable: Tensor | None,
) -> Part:
    """The part of all blocks in the reading of few queries; torch's threads share out the blocks.

    Args:
        form: the scores.
        spans: the rows of each block.
        readers: makes for each thread what reads a block: its keys and its values, as `row_loops` reads them.
        d_value: the width of the values.
        readable: (queries or 1, entries or 1) which may be read; None for all.
    """
    from regard.memory.reading_loops import TILE, fold  # and numba

    queries = _queries(form)
    count = len(queries)
    if readable is not None:  # as bytes: numba is slow to recognise booleans
        readable = readable.expand(count, spans[-1][1]).view(torch.uint8)
    everything = np.empty(0, np.uint8)
    threads = max(1, min(torch.get_num_threads(), len(spans)))
    sums, blend = _sums(threads, count), np.zeros((threads, count, d_value))
    faults: list[BaseException] = []

    def fold_share(thread: int) -> None:
        read, room = readers(), np.zeros(TILE + d_value, np.float32)
        for span in spans[thread::threads]:
            keys, values = read(span)
            for row, query in enumerate(queries):
                if faults:  # of another thread, or an interrupt
                    return
                marks = everything
                if readable is not None:  # numba compiles again for numbers that are apart
                    marks = readable[row, slice(*span)].contiguous().numpy()
                whole = sums[thread, row], blend[thread, row]
                fold(query, form.by_length, keys, values, marks, *whole, room)

    def work(thread: int) -> None:
        try:
            fold_share(thread)
        except BaseException as fault:
            faults.append(fault)
            raise

    run([partial(work, thread) for thread in range(threads)])
    maxima, totals = torch.from_numpy(sums).unbind(-1)
    return Part.stacked(maxima.float(), totals, torch.from_numpy(blend))


def best_of(
    form: Linear, blocks: Iterable[tuple[Span, np.ndarray]], k: int, readable: Tensor | None = None
) -> tuple[Tensor, Tensor] | None:
    """The largest softmax weights of each query, and where they stand; None where numbers overflow.

    Args:
        form: the scores.
        blocks: the rows of each, and its keys, as `row_loops` reads them.
        k: how many are wanted.
        readable: (entries,) which may be read; None for all.
    """
    from regard.memory.row_loops import widened  # and numba
    from regard.memory.search_loops import collect, score

    queries = _queries(form)
    count, wide = len(queries), torch.from_numpy(queries)
    sums, spare = _sums(count), np.zeros(count, np.float32)
    best, places = np.full((count, k), -np.inf, np.float32), np.zeros((count, k), np.int64)
    room = torch.empty(0)
    for start, rows in _in_pieces(blocks, block_rows(count)):
        size = count * len(rows)
        if room.numel() < size:
            room = torch.empty(size)
        scores = room[:size].view(count, len(rows))
        if count > FEW:
            key = widened(rows)
            rows = key.numpy()
            torch.mm(wide, key.mT, out=scores)
            if form.by_length:
                length = torch.linalg.vector_norm(key, dim=-1)
                scores /= length.masked_fill_(length < SHORTEST, torch.inf)
        else:
            score(queries, form.by_length, rows, scores.numpy())
        if readable is not None:
            scores.masked_fill_(~readable[start : start + len(rows)], -torch.inf)
        collect(queries, form.by_length, rows, start, scores.numpy(), sums, best, places, spare)
    if not (np.isfinite(sums).all() and np.isfinite(best).all()):
        return None
    weights = np.exp(best - sums[:, :1]) / sums[:, 1:]
    return torch.from_numpy(weights).clamp_(max=1.0).float(), torch.from_numpy(places)


def _in_pieces(
    blocks: Iterable[tuple[Span, np.ndarray]], height: int
) -> Iterator[tuple[int, np.ndarray]]:
    """The first row of each piece, and so many rows or fewer."""
    for (start, _), rows in blocks:
        for begin in range(0, len(rows), height):
            yield start + begin, rows[begin : begin + height]


def _queries(form: Linear) -> np.ndarray:
    return (form.query / form.temperature).float().contiguous().numpy()


def _sums(*counts: int) -> np.ndarray:
    """The largest score of each query, and the sum of exponentials, of nothing."""
    sums = np.zeros((*counts, 2))
    sums[..., 0] = -np.inf
    return sums
