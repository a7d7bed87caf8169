"""The operations on a row between two products: norms, biases, activations. Arrays are flat."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from regard.loops.compiling import inner, inner_sum, lanes
from regard.loops.exponentials import exponential

RELU, GELU, SILU = range(3)


@inner_sum
def _mean(row: Any) -> Any:
    lanes()
    total = np.float32(0)
    for i in range(np.uint64(row.size)):
        total += row[i]
    return total / np.float32(row.size)


@inner_sum
def _variance(row: Any, mean: Any) -> Any:
    lanes()
    total = np.float32(0)
    for i in range(np.uint64(row.size)):
        total += (row[i] - mean) * (row[i] - mean)
    return total / np.float32(row.size)


@inner
def _scale(row: Any, mean: Any, by: Any, weight: Any, bias: Any, out: Any) -> None:
    for i in range(np.uint64(row.size)):
        out[i] = (row[i] - mean) * by * weight[i] + bias[i]


@inner
def norm(x: Any, rows: Any, width: Any, weights: Any, at: Any, out: Any) -> None:
    """out = norm(x), row by row; its weight, bias and epsilon lie one after the other. out may be x."""
    weight, bias = weights[at : at + width], weights[at + width : at + 2 * width]
    epsilon = weights[at + 2 * width]
    for r in range(rows):
        row = x[r * width : r * width + width]
        mean = _mean(row)
        by = np.float32(1) / np.float32(math.sqrt(_variance(row, mean) + epsilon))
        _scale(row, mean, by, weight, bias, out[r * width : r * width + width])


@inner
def _add(row: Any, more: Any) -> None:
    lanes()
    for i in range(np.uint64(row.size)):
        row[i] += more[i]


@inner
def add(x: Any, more: Any, rows: Any, width: Any, weights: Any, at: Any) -> None:
    """x += more + b."""
    for r in range(rows):
        row = x[r * width : r * width + width]
        _add(row, more[r * width : r * width + width])
        _add(row, weights[at : at + width])


@inner
def add_bias(x: Any, rows: Any, width: Any, weights: Any, at: Any) -> None:
    """x += b; nothing where there is none, at a negative place."""
    if at >= 0:
        for r in range(rows):
            _add(x[r * width : r * width + width], weights[at : at + width])


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
