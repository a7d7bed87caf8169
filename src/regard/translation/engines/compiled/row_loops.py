"""The operations between two products, row by row: norms, biases, activations and attention. Arrays are flat.

    out = sum_t softmax_t(q . k_t / sqrt(d)) v_t        for each head

The keys and values of one position lie side by side, all heads of the keys first. One query is read
at a time: the memories of a translation are short, and a product of one row gains nothing.
"""

import math
from typing import Any

import numpy as np

from regard.loops.compiling import inner, inner_sum, lanes
from regard.loops.exponentials import exponential
from regard.loops.rows import add, clear, dot

RELU, GELU, SILU = range(3)


@inner_sum
def _sum(row: Any) -> Any:
    lanes()
    total = np.float32(0)
    for i in range(np.uint64(row.size)):
        total += row[i]
    return total


@inner_sum
def _variance(row: Any, mean: Any) -> Any:
    lanes()
    total = np.float32(0)
    for i in range(np.uint64(row.size)):
        total += (row[i] - mean) * (row[i] - mean)
    return total / np.float32(row.size)


@inner
def _scale(row: Any, mean: Any, factor: Any, weight: Any, bias: Any, out: Any) -> None:
    for i in range(np.uint64(row.size)):
        out[i] = (row[i] - mean) * factor * weight[i] + bias[i]


@inner
def norm(x: Any, rows: Any, width: Any, weights: Any, at: Any, out: Any) -> None:
    """out = norm(x), row by row; its weight, bias and epsilon lie one after the other. out may be x."""
    weight, bias = weights[at : at + width], weights[at + width : at + 2 * width]
    epsilon = weights[at + 2 * width]
    for r in range(rows):
        row = x[r * width : r * width + width]
        mean = _sum(row) / np.float32(width)
        factor = np.float32(1) / np.float32(math.sqrt(_variance(row, mean) + epsilon))
        _scale(row, mean, factor, weight, bias, out[r * width : r * width + width])


@inner
def add_bias(x: Any, rows: Any, width: Any, weights: Any, at: Any) -> None:
    """x += b; nothing where there is none, at a negative place."""
    if at >= 0:
        for r in range(rows):
            add(x, r * width, weights, at, width)


@inner
def _embed(row: Any, scale: Any, place: Any, out: Any) -> None:
    lanes()
    for i in range(np.uint64(out.size)):
        out[i] = row[i] * scale + place[i]


@inner
def embed(words: Any, places: Any, table: Any, scale: Any, positions: Any, x: Any) -> None:
    """x = scale E[word] + P[place]."""
    width = table.shape[1]
    for r in range(len(words)):
        out = x[r * width : r * width + width]
        _embed(table[words[r]], scale, positions[places[r]], out)


@inner
def _relu(row: Any, bias: Any) -> None:
    lanes()
    for i in range(np.uint64(row.size)):
        x = row[i] + bias[i]
        # NaN stays NaN.
        row[i] = np.float32(0) if x < np.float32(0) else x


@inner
def _silu(row: Any, bias: Any) -> None:
    lanes()
    for i in range(np.uint64(row.size)):
        x = row[i] + bias[i]
        row[i] = x / (np.float32(1) + exponential(-x))


@inner
def _gelu(row: Any, bias: Any) -> None:
    for i in range(row.size):
        x = row[i] + bias[i]
        row[i] = np.float32(0.5) * x * np.float32(1 + math.erf(x * 0.7071067811865476))


@inner
def activate(x: Any, rows: Any, width: Any, weights: Any, at: Any, kind: Any) -> None:
    """x = f(x + b), in place."""
    bias = weights[at : at + width]
    for r in range(rows):
        row = x[r * width : r * width + width]
        if kind == RELU:
            _relu(row, bias)
        elif kind == SILU:
            _silu(row, bias)
        else:
            _gelu(row, bias)


@inner
def _exponentials(scores: Any, peak: Any) -> None:
    lanes()
    for t in range(np.uint64(scores.size)):
        scores[t] = exponential(scores[t] - peak)


@inner
def _softmax(scores: Any, heads: Any, count: Any) -> None:
    """Scores to weights, in place, for every head."""
    for h in range(heads):
        # w_t = e^(s_t - max s) / sum of these: no exponential overflows.
        row = scores[h, :count]
        peak = row[0]
        for t in range(1, count):
            peak = max(peak, row[t])
        _exponentials(row, peak)
        factor = np.float32(1) / _sum(row)
        for t in range(count):
            row[t] *= factor


@inner
def _score(query: Any, key: Any, heads: Any, scale: Any, t: Any, scores: Any) -> None:
    """scores[h, t] = scale q_h . k_h, of the key at position t."""
    width = query.size // heads
    for h in range(heads):
        scores[h, t] = scale * dot(query, h * width, key, h * width, width)


@inner
def _add_scaled(out: Any, row: Any, weight: Any) -> None:
    lanes()
    for i in range(np.uint64(out.size)):
        out[i] += weight * row[i]


@inner
def _blend(value: Any, heads: Any, t: Any, weights: Any, out: Any) -> None:
    """out_h += weights[h, t] v_h, of the value at position t."""
    width = out.size // heads
    for h in range(heads):
        begin, end = h * width, (h + 1) * width
        _add_scaled(out[begin:end], value[begin:end], weights[h, t])


@inner
def read_span(
    query: Any,
    memory: Any,
    stride: Any,
    keys: Any,
    start: Any,
    end: Any,
    heads: Any,
    scale: Any,
    scores: Any,
    out: Any,
) -> None:
    """Read a flat memory's positions from `start` up to `end`.

    Position t's numbers begin at t `stride`; `keys` further on are its key and then its value.
    `scores` is a buffer: heads x positions.
    """
    width, count = out.size, end - start
    for t in range(count):
        at = (start + t) * stride + keys
        _score(query, memory[at : at + width], heads, scale, t, scores)
    _softmax(scores, heads, count)
    clear(out, 0, width)
    for t in range(count):
        at = (start + t) * stride + keys + width
        _blend(memory[at : at + width], heads, t, scores, out)


@inner
def read_cached(
    query: Any,
    cache: Any,
    steps: Any,
    ancestors: Any,
    heads: Any,
    scale: Any,
    scores: Any,
    out: Any,
) -> None:
    """Read the keys and values that a row's ancestors wrote: at step t, it was row ancestors[t]."""
    width = out.size
    for t in range(steps):
        _score(query, cache[t, ancestors[t], :width], heads, scale, t, scores)
    _softmax(scores, heads, steps)
    clear(out, 0, width)
    for t in range(steps):
        _blend(cache[t, ancestors[t], width:], heads, t, scores, out)
