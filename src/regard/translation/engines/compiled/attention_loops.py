"""Attention row by row: over the decoder's cache and over the source.

    out = sum_t softmax_t(q . k_t / sqrt(d)) v_t        for each head

The keys and values of one position lie side by side, all heads of the keys first. One query is read
at a time: the memories of a translation are short, and a product of one row gains nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from regard.loops.compiling import inner, inner_sum, lanes
from regard.loops.exponentials import exponential
from regard.loops.rows import dot


@inner
def _add_scaled(out: Any, row: Any, by: Any) -> None:
    lanes()
    for i in range(np.uint64(out.size)):
        out[i] += by * row[i]


@inner
def copy(out: Any, row: Any) -> None:
    lanes()
    for i in range(np.uint64(out.size)):
        out[i] = row[i]


@inner
def _clear(row: Any) -> None:
    for i in range(row.size):
        row[i] = 0


@inner
def _exponentials(scores: Any, most: Any) -> None:
    lanes()
    for t in range(np.uint64(scores.size)):
        scores[t] = exponential(scores[t] - most)


@inner_sum
def _sum(scores: Any) -> Any:
    lanes()
    total = np.float32(0)
    for t in range(np.uint64(scores.size)):
        total += scores[t]
    return total


@inner
def _soften(room: Any, heads: Any, count: Any) -> None:
    """Scores to weights, in place, for every head."""
    for h in range(heads):
        scores = room[h, :count]
        most = scores[0]
        for t in range(1, count):
            most = max(most, scores[t])
        _exponentials(scores, most)
        by = np.float32(1) / _sum(scores)
        for t in range(count):
            scores[t] *= by


@inner
def _score(query: Any, key: Any, heads: Any, scale: Any, t: Any, scores: Any) -> None:
    d = query.size // heads
    for h in range(heads):
        scores[h, t] = scale * dot(query, h * d, key, h * d, d)


@inner
def _blend(value: Any, heads: Any, t: Any, weights: Any, out: Any) -> None:
    d = out.size // heads
    for h in range(heads):
        _add_scaled(out[h * d : h * d + d], value[h * d : h * d + d], weights[h, t])


@inner
def read_span(
    query: Any,
    memory: Any,
    stride: Any,
    keys: Any,
    first: Any,
    last: Any,
    heads: Any,
    scale: Any,
    room: Any,
    out: Any,
) -> None:
    """Read a flat memory's positions from `first` up to `last`.

    Position t's numbers begin at t `stride`; `keys` further on are its key and then its value.
    `room` is for the scores: heads x positions.
    """
    width, count = out.size, last - first
    for t in range(count):
        at = (first + t) * stride + keys
        _score(query, memory[at : at + width], heads, scale, t, room)
    _soften(room, heads, count)
    _clear(out)
    for t in range(count):
        at = (first + t) * stride + keys + width
        _blend(memory[at : at + width], heads, t, room, out)


@inner
def read_cached(
    query: Any, said: Any, steps: Any, came: Any, heads: Any, scale: Any, room: Any, out: Any
) -> None:
    """Read what a row's ancestors said: at step t, it was row came[t]."""
    width = out.size
    for t in range(steps):
        _score(query, said[t, came[t], :width], heads, scale, t, room)
    _soften(room, heads, steps)
    _clear(out)
    for t in range(steps):
        _blend(said[t, came[t], width:], heads, t, room, out)
