"""Attention within each sentence, head by head: softmax(Q K^T / sqrt(d)) V and its gradients.

Queries, keys and values are rows of `stride` numbers, flat, in which a tensor begins at an offset; the
heads lie side by side. The weights of a head are kept for the way back, as rows of a multiple of
LANES; where they are in memory, `places` tells for each sentence.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from regard.attention.kernels.cpu.exponentials import exponential
from regard.attention.kernels.cpu.machine import compiled, inner, inner_sum, lanes
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
            for i in range(up(queries, ROWS)):
                readable = min(i + 1, keys) if layout.causal else keys
                if i >= queries:
                    readable = 0
                softmax(weights, place + i * columns, readable, columns, layout.scale)
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
    """The gradients of queries, keys and values of sentences first to last; `room` is six benches."""
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
def softmax(row: Any, at: Any, readable: Any, columns: Any, scale: Any) -> None:
    """Scores to weights, in place; zeros from `readable` on."""
    start, n = np.uint64(at), np.uint64(readable)
    if readable:
        peak = _peak(row, start, n)
        _exponentials(row, start, n, peak, scale)
        _scaled(row, start, n, row.dtype.type(1) / _sum(row, start, n))
    for j in range(n, np.uint64(columns)):
        row[start + j] = 0


@inner_sum
def _peak(row: Any, start: Any, n: Any) -> Any:
    peak = row[start]
    for j in range(n):
        x = row[start + j]
        peak = x if x > peak else peak
    return peak


@inner
def _exponentials(row: Any, start: Any, n: Any, peak: Any, scale: Any) -> None:
    lanes()
    for j in range(n):
        row[start + j] = exponential((row[start + j] - peak) * scale)


@inner_sum
def _sum(row: Any, start: Any, n: Any) -> Any:
    lanes()
    total = row.dtype.type(0)
    for j in range(n):
        total += row[start + j]
    return total


@inner
def _scaled(row: Any, start: Any, n: Any, factor: Any) -> None:
    lanes()
    for j in range(n):
        row[start + j] *= factor


@inner
def softmax_slope(weights: Any, at: Any, slopes: Any, of: Any, n: Any, scale: Any) -> None:
    """Gradients of weights to those of the products of query and key, in place."""
    i, j, count = np.uint64(at), np.uint64(of), np.uint64(n)
    mean = _weighted(weights, i, slopes, j, count)
    _slopes(weights, i, slopes, j, count, mean, scale)


@inner_sum
def _weighted(weights: Any, i: Any, slopes: Any, j: Any, n: Any) -> Any:
    lanes()
    total = weights.dtype.type(0)
    for k in range(n):
        total += weights[i + k] * slopes[j + k]
    return total


@inner
def _slopes(weights: Any, i: Any, slopes: Any, j: Any, n: Any, mean: Any, scale: Any) -> None:
    lanes()
    for k in range(n):
        slopes[j + k] = weights[i + k] * (slopes[j + k] - mean) * scale
