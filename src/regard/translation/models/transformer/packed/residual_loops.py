"""Between two sublayers: dropout, the residual sum and the layer norm, in one pass over each row.

    x' = x + keep * (f + bias),   z = (x' - mean) / deviation * gain + shift

Layer normalisation: Ba, Kiros and Hinton 2016, arXiv 1607.06450. A number of f is kept where its byte of
`draws` is at least `dropped`. Arrays are flat, rows of `width`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from regard.loops.compiling import compiled, inner, inner_sum, lanes


class Chance(NamedTuple):
    """A byte for each number, from which byte on it is kept, and what it is multiplied by then."""

    draws: Any
    dropped: Any
    scale: Any


class Norm(NamedTuple):
    gain: Any
    shift: Any
    epsilon: Any


@compiled
def forward(
    first: int,
    last: int,
    width: int,
    x: Any,
    f: Any,
    bias: Any,
    chance: Chance,
    norm: Norm,
    total: Any,
    normed: Any,
    moments: Any,
) -> None:
    """Rows first to last; `moments` holds the mean and the inverse deviation of each row."""
    for row in range(first, last):
        at = np.uint64(row * width)
        add(x, f, bias, at, np.uint64(width), chance.draws, chance.dropped, chance.scale, total)
        mean = sum_of(total, at, np.uint64(width)) / np.float32(width)
        variance = squares(total, at, np.uint64(width), mean) / np.float32(width)
        inverse = np.float32(1) / np.sqrt(variance + norm.epsilon)
        moments[2 * row], moments[2 * row + 1] = mean, inverse
        normalise(total, at, np.uint64(width), mean, inverse, norm.gain, norm.shift, normed)


@compiled
def backward(
    first: int,
    last: int,
    width: int,
    total: Any,
    moments: Any,
    chance: Chance,
    gain: Any,
    onward: int,
    for_total: Any,
    for_normed: Any,
    for_x: Any,
    for_f: Any,
    for_gain: Any,
    for_shift: Any,
    for_bias: Any,
) -> None:
    """Gradients of x, f, gain, shift and bias; `for_total` counts only where `onward` is 1."""
    n, one = np.uint64(width), np.float32(1)
    for row in range(first, last):
        at = np.uint64(row * width)
        mean, inverse = moments[2 * row], moments[2 * row + 1]
        plain = weighted(for_normed, at, n, gain) / np.float32(width)
        tilted = weighted_deviation(for_normed, at, n, gain, total, mean, inverse) / np.float32(
            width
        )
        gather(for_normed, at, n, total, mean, inverse, for_gain, for_shift)
        for j in range(n):
            for_x[at + j] = for_total[at + j] if onward else np.float32(0)
        pass_on(for_normed, at, n, gain, total, mean, inverse, plain, tilted, for_x)
        drop(for_x, at, n, chance.draws, chance.dropped, chance.scale * one, for_f, for_bias)


@inner
def add(
    x: Any, f: Any, bias: Any, at: Any, n: Any, draws: Any, dropped: Any, scale: Any, total: Any
) -> None:
    lanes()
    for j in range(n):
        kept = scale if draws[at + j] >= dropped else np.float32(0)
        total[at + j] = x[at + j] + (f[at + j] + bias[j]) * kept


@inner_sum
def sum_of(row: Any, at: Any, n: Any) -> Any:
    lanes()
    total = np.float32(0)
    for j in range(n):
        total += row[at + j]
    return total


@inner_sum
def squares(row: Any, at: Any, n: Any, mean: Any) -> Any:
    lanes()
    total = np.float32(0)
    for j in range(n):
        d = row[at + j] - mean
        total += d * d
    return total


@inner
def normalise(
    row: Any, at: Any, n: Any, mean: Any, inverse: Any, gain: Any, shift: Any, out: Any
) -> None:
    lanes()
    for j in range(n):
        out[at + j] = (row[at + j] - mean) * inverse * gain[j] + shift[j]


@inner_sum
def weighted(row: Any, at: Any, n: Any, gain: Any) -> Any:
    lanes()
    total = np.float32(0)
    for j in range(n):
        total += row[at + j] * gain[j]
    return total


@inner_sum
def weighted_deviation(
    row: Any, at: Any, n: Any, gain: Any, given: Any, mean: Any, inverse: Any
) -> Any:
    lanes()
    total = np.float32(0)
    for j in range(n):
        total += row[at + j] * gain[j] * ((given[at + j] - mean) * inverse)
    return total


@inner
def gather(
    row: Any, at: Any, n: Any, given: Any, mean: Any, inverse: Any, for_gain: Any, for_shift: Any
) -> None:
    lanes()
    for j in range(n):
        for_gain[j] += row[at + j] * ((given[at + j] - mean) * inverse)
        for_shift[j] += row[at + j]


@inner
def pass_on(
    row: Any,
    at: Any,
    n: Any,
    gain: Any,
    given: Any,
    mean: Any,
    inverse: Any,
    plain: Any,
    tilted: Any,
    out: Any,
) -> None:
    lanes()
    for j in range(n):
        deviation = (given[at + j] - mean) * inverse
        out[at + j] += inverse * (row[at + j] * gain[j] - plain - deviation * tilted)


@inner
def drop(
    row: Any, at: Any, n: Any, draws: Any, dropped: Any, scale: Any, out: Any, for_bias: Any
) -> None:
    lanes()
    for j in range(n):
        kept = scale if draws[at + j] >= dropped else np.float32(0)
        x = row[at + j] * kept
        out[at + j] = x
        for_bias[j] += x


@compiled
def rectify(first: int, last: int, width: int, x: Any, bias: Any) -> None:
    """max(0, x + bias) in place."""
    for row in range(first, last):
        rectify_row(x, np.uint64(row * width), np.uint64(width), bias)


@inner
def rectify_row(x: Any, at: Any, n: Any, bias: Any) -> None:
    lanes()
    for j in range(n):
        y = x[at + j] + bias[j]
        # NaN stays NaN.
        x[at + j] = np.float32(0) if y < np.float32(0) else y


@compiled
def rectified_slope(
    first: int, last: int, width: int, made: Any, slope: Any, for_bias: Any
) -> None:
    """The gradient before the rectifier, in place, and its sum over the rows."""
    for row in range(first, last):
        slope_row(made, slope, np.uint64(row * width), np.uint64(width), for_bias)


@inner
def slope_row(made: Any, slope: Any, at: Any, n: Any, for_bias: Any) -> None:
    lanes()
    for j in range(n):
        x = slope[at + j] if made[at + j] > np.float32(0) else np.float32(0)
        slope[at + j] = x
        for_bias[j] += x
