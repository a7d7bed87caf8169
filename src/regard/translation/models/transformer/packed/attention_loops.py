"""Attention within each sentence, head by head: softmax(Q K^T / sqrt(d)) V and its gradients.

Queries, keys and values are rows of `stride` numbers, flat, in which a tensor begins at an offset; the
heads lie side by side. The weights of a head are kept for the way back, as rows of a multiple of
LANES; where they are in memory, `places` tells for each sentence.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from regard.loops.compiling import compiled, inner, lanes
from regard.loops.exponentials import exponential
from regard.loops.rows import largest
from regard.loops.vectors import everywhere, fused, load, store
from regard.loops.vectors import total as sum_of_lanes
from regard.translation.models.transformer.packed.products import (
    LANES,
    ROWS,
    give,
    multiply,
    take,
    take_turned,
)


class Layout(NamedTuple):
    """Where the heads of all sentences are."""

    queries: Any  # starts of the sentences among the queries
    keys: Any  # and among the keys
    places: Any  # and of their weights
    heads: int
    width: int  # of one head
    causal: int
    scale: Any


class Rows(NamedTuple):
    """A tensor of rows, flat."""

    items: Any
    stride: int
    offset: int


@inner
def up(n: Any, to: Any) -> Any:
    return (n + to - 1) // to * to


@compiled
def forward(
    first: int,
    last: int,
    layout: Layout,
    q: Rows,
    k: Rows,
    v: Rows,
    weights: Any,
    out: Rows,
    room: Any,
) -> None:
    """The readings of sentences first to last; `room` is four benches, zeros."""
    bench, turned, values, reading = room[0], room[1], room[2], room[3]
    width, padded = layout.width, up(layout.width, LANES)
    for sentence in range(first, last):
        row, queries = (
            layout.queries[sentence],
            layout.queries[sentence + 1] - layout.queries[sentence],
        )
        key, keys = layout.keys[sentence], layout.keys[sentence + 1] - layout.keys[sentence]
        columns = up(keys, LANES)
        for head in range(layout.heads):
            place = layout.places[sentence] + head * up(queries, ROWS) * columns
            within = head * width
            take(
                q.items, q.offset + row * q.stride + within, q.stride, queries, width, padded, bench
            )
            take_turned(
                k.items, k.offset + key * k.stride + within, k.stride, keys, width, columns, turned
            )
            take(v.items, v.offset + key * v.stride + within, v.stride, keys, width, padded, values)
            multiply(bench, 0, padded, 1, queries, width, turned, 0, columns, weights, place)
            softmax(weights, place, queries, keys, columns, layout.causal, layout.scale)
            for j in range(place + queries * columns, place + up(queries, ROWS) * columns):
                weights[np.uint64(j)] = 0
            multiply(weights, place, columns, 1, queries, keys, values, 0, padded, reading, 0)
            give(
                reading,
                padded,
                out.items,
                out.offset + row * out.stride + within,
                out.stride,
                queries,
                width,
            )


@compiled
def backward(
    first: int,
    last: int,
    layout: Layout,
    q: Rows,
    k: Rows,
    v: Rows,
    weights: Any,
    upstream: Rows,
    for_q: Rows,
    for_k: Rows,
    for_v: Rows,
    room: Any,
) -> None:
    """The gradients of queries, keys and values of sentences first to last; `room` is five benches."""
    slope, turned, other, made, slopes = room[0], room[1], room[2], room[3], room[4]
    width, padded = layout.width, up(layout.width, LANES)
    for sentence in range(first, last):
        row, queries = (
            layout.queries[sentence],
            layout.queries[sentence + 1] - layout.queries[sentence],
        )
        key, keys = layout.keys[sentence], layout.keys[sentence + 1] - layout.keys[sentence]
        columns = up(keys, LANES)
        for head in range(layout.heads):
            place = layout.places[sentence] + head * up(queries, ROWS) * columns
            within = head * width
            at_q = row * q.stride + within
            take(
                upstream.items,
                upstream.offset + row * upstream.stride + within,
                upstream.stride,
                queries,
                width,
                padded,
                slope,
            )
            multiply(weights, place, 1, columns, keys, queries, slope, 0, padded, made, 0)
            give(
                made,
                padded,
                for_v.items,
                for_v.offset + key * for_v.stride + within,
                for_v.stride,
                keys,
                width,
            )
            take_turned(
                v.items, v.offset + key * v.stride + within, v.stride, keys, width, columns, turned
            )
            multiply(slope, 0, padded, 1, queries, width, turned, 0, columns, slopes, 0)
            for i in range(queries):
                softmax_slope(
                    weights, place + i * columns, slopes, i * columns, columns, layout.scale
                )
            take(k.items, k.offset + key * k.stride + within, k.stride, keys, width, padded, other)
            multiply(slopes, 0, columns, 1, queries, keys, other, 0, padded, made, 0)
            give(
                made,
                padded,
                for_q.items,
                for_q.offset + row * for_q.stride + within,
                for_q.stride,
                queries,
                width,
            )
            take(q.items, q.offset + at_q, q.stride, queries, width, padded, other)
            multiply(slopes, 0, 1, columns, keys, queries, other, 0, padded, made, 0)
            give(
                made,
                padded,
                for_k.items,
                for_k.offset + key * for_k.stride + within,
                for_k.stride,
                keys,
                width,
            )


@inner
def softmax(
    block: Any, at: Any, rows: Any, keys: Any, columns: Any, causal: Any, scale: Any
) -> None:
    """Scores to weights, in place, row by row but for the exponentials; zeros where nothing may be read."""
    never = block.dtype.type(-np.inf)
    for i in range(rows):
        start = at + i * columns
        for j in range(start + (min(i + 1, keys) if causal else keys), start + columns):
            block[np.uint64(j)] = never
        peak = everywhere(block, largest(block, start, columns))
        factor = everywhere(block, scale)
        for column in range(start, start + columns, LANES):
            store(block, column, (load(block, column) - peak) * factor)
    _exponentials(block, np.uint64(at), np.uint64(rows * columns))
    for i in range(rows):
        start = at + i * columns
        total = everywhere(block, 0)
        for column in range(start, start + columns, LANES):
            total = total + load(block, column)
        factor = everywhere(block, block.dtype.type(1) / sum_of_lanes(total))
        for column in range(start, start + columns, LANES):
            store(block, column, load(block, column) * factor)


@inner
def _exponentials(block: Any, start: Any, n: Any) -> None:
    lanes()
    never, zero = block.dtype.type(-np.inf), block.dtype.type(0)
    for j in range(n):
        x = block[start + j]
        p = exponential(x)
        block[start + j] = zero if x == never else p


@inner
def softmax_slope(weights: Any, at: Any, slopes: Any, of: Any, n: Any, scale: Any) -> None:
    """Gradients of weights to those of the products of query and key, in place."""
    total = everywhere(weights, 0)
    for column in range(0, n, LANES):
        total = fused(load(weights, at + column), load(slopes, of + column), total)
    mean, factor = everywhere(weights, sum_of_lanes(total)), everywhere(weights, scale)
    for column in range(0, n, LANES):
        made = load(weights, at + column) * (load(slopes, of + column) - mean) * factor
        store(slopes, of + column, made)
