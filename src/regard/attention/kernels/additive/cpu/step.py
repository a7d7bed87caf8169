"""Additive attention one query a sentence, as a decoder asks it, step after step of one memory.

    p_j = softmax_j(sum_h w_h tanh(a_h + c_jh)),   context = sum_j p_j v_j
    tanh(a + c) = 1 - 2 r,   r = 1 / (1 + A C),   A = e^(2a),   C = e^(2c)

C is taken once a sentence (`remember`) and serves all steps, so that a step is multiplications,
additions and a division for four channels. A C is capped: r is then nothing beside 1, and a product
of four is still a number. Where |a| or |c| is beyond REACH, A or C
might not be one of full precision: the sentence is then computed from a + c itself.

Arrays are flat, with where a row starts; channels are padded to a multiple of ROUND with A = C = 0.
Keys that may not be read have weight 0 and are not visited.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from regard.attention.kernels.additive.cpu.features import REACH
from regard.attention.kernels.additive.cpu.hidden import FAR, reciprocal
from regard.loops.compiling import compiled, inner, inner_sum, lanes
from regard.loops.exponentials import exponential
from regard.loops.rows import dot

ROUND = 64  # four vectors of sixteen float32
CAPS: dict[Any, Any] = {torch.float32: np.float32(2.0**31), torch.float64: 2.0**60}


class Memory(NamedTuple):
    """What is read, a row of `keys` keys for each sentence."""

    features: Any  # c, a row of `hidden` a key
    powers: Any  # C, a row of `padded` a key
    near: Any  # of each sentence, whether C is within reach
    readable: Any  # of each key
    values: Any  # a row of `width` a key
    weight: Any  # w
    keys: int
    hidden: int
    padded: int
    width: int
    cap: Any  # of CAPS


class Steps(NamedTuple):
    """What asks, and what it is told: for every step a row for each sentence."""

    queries: Any  # a, at `column` of rows of `stride`
    stride: int
    column: int
    weights: Any  # p, rows of `keys`
    contexts: Any  # rows of `width`


class Slopes(NamedTuple):
    """Gradients, in the places of what they belong to."""

    queries: Any  # in rows like the queries' own
    contexts: Any
    features: Any
    weight: Any  # a row of `hidden` for each sentence


@compiled
def remember(memory: Any) -> None:
    """Fill `powers` and `near`."""
    keys, hidden, padded = memory.keys, memory.hidden, memory.padded
    for sentence in range(len(memory.near)):
        near = True
        for key in range(sentence * keys, (sentence + 1) * keys):
            if memory.readable[key] != 0:
                within = exponentials(
                    memory.features, key * hidden, memory.powers, key * padded, hidden, padded
                )
                near = near and within
        memory.near[sentence] = 1 if near else 0


@compiled
def read(first: Any, last: Any, step: Any, memory: Any, steps: Any, room: Any) -> None:
    """Weights and contexts of sentences `first` to `last`; room for two rows of padded channels."""
    keys, width = memory.keys, memory.width
    for sentence in range(first, last):
        row = step * len(memory.near) + sentence
        fast = ask(sentence, row, memory, steps, room)
        peak = -np.inf
        for j in range(keys):
            key = sentence * keys + j
            if memory.readable[key] != 0:
                compare(row, key, memory, steps, room, fast)
                score = total_of(memory.weight, room, memory.padded, memory.hidden)
                steps.weights[row * keys + j] = score
                peak = score if score > peak or score != score else peak
        softmax(steps.weights, row * keys, memory.readable, sentence * keys, keys, peak)
        blend(row, sentence * keys, memory.values, steps.weights, steps.contexts, keys, width)


@compiled
def slopes(
    first: Any, last: Any, step: Any, memory: Any, steps: Any, slopes: Any, room: Any
) -> None:
    """From the gradient of these contexts that of the queries; those of features and w are added to.

    With g the gradient of the context: ds_j = p_j (g . v_j - g . context), and for each channel
    da = 4 w sum_j ds_j r_j (1 - r_j), dc_j = 4 w ds_j r_j (1 - r_j), dw = sum_j ds_j (1 - 2 r_j).
    The values' gradient, the sum over steps of p_j g, is one product of matrices, the caller's.
    """
    keys, hidden, width = memory.keys, memory.hidden, memory.width
    for sentence in range(first, last):
        row = step * len(memory.near) + sentence
        fast = ask(sentence, row, memory, steps, room)
        mean = dot(slopes.contexts, row * width, steps.contexts, row * width, width)
        to = row * steps.stride + steps.column
        for h in range(hidden):
            slopes.queries[to + h] = 0
        for j in range(keys):
            key, weight = sentence * keys + j, steps.weights[row * keys + j]
            if weight != 0:
                compare(row, key, memory, steps, room, fast)
                slope = dot(slopes.contexts, row * width, memory.values, key * width, width)
                through_tanh(
                    room,
                    memory.padded,
                    memory.weight,
                    weight * (slope - mean),
                    slopes.queries,
                    to,
                    slopes.features,
                    key * hidden,
                    slopes.weight,
                    sentence * hidden,
                    hidden,
                )


@inner
def ask(sentence: Any, row: Any, memory: Any, steps: Any, room: Any) -> Any:
    """Write A of a query down; whether products of A and C are safe."""
    at = row * steps.stride + steps.column
    within = exponentials(steps.queries, at, room, 0, memory.hidden, memory.padded)
    return within and memory.near[sentence] != 0


@inner
def compare(row: Any, key: Any, memory: Any, steps: Any, room: Any, fast: Any) -> None:
    """Write r of a query and a key down, behind the query's A."""
    hidden, padded = memory.hidden, memory.padded
    if fast:
        shared(room, memory.powers, key * padded, padded, memory.cap)
    else:
        at = row * steps.stride + steps.column
        direct(room, padded, steps.queries, at, memory.features, key * hidden, hidden)


@inner_sum
def exponentials(given: Any, at: Any, powers: Any, to: Any, hidden: Any, padded: Any) -> Any:
    """e^(2x) of one row, 0 beyond its channels, and whether all of it is within reach."""
    lanes()
    i, k = np.uint64(at), np.uint64(to)
    outside = given.dtype.type(0)
    one, zero, reach = given.dtype.type(1), given.dtype.type(0), given.dtype.type(REACH)
    for h in range(np.uint64(hidden)):
        x = given[i + h]
        powers[k + h] = exponential(x + x)
        outside += zero if abs(x) <= reach else one
    for h in range(np.uint64(hidden), np.uint64(padded)):
        powers[k + h] = 0
    return outside == zero


@inner
def shared(room: Any, powers: Any, at: Any, padded: Any, cap: Any) -> None:
    """r of one query and key after the query's A in `room`, four channels a division."""
    lanes()
    one = room.dtype.type(1)
    i, quarter = np.uint64(at), np.uint64(padded // 4)
    half, rest, to = quarter + quarter, quarter + quarter + quarter, np.uint64(padded)
    for h in range(quarter):
        u0, u1 = room[h] * powers[i + h], room[quarter + h] * powers[i + quarter + h]
        u2, u3 = room[half + h] * powers[i + half + h], room[rest + h] * powers[i + rest + h]
        t0, t1 = one + (cap if u0 > cap else u0), one + (cap if u1 > cap else u1)
        t2, t3 = one + (cap if u2 > cap else u2), one + (cap if u3 > cap else u3)
        t01, t23 = t0 * t1, t2 * t3
        inverse = one / (t01 * t23)
        i01, i23 = inverse * t23, inverse * t01
        room[to + h], room[to + quarter + h] = i01 * t1, i01 * t0
        room[to + half + h], room[to + rest + h] = i23 * t3, i23 * t2


@inner
def direct(
    room: Any, to: Any, queries: Any, query: Any, features: Any, key: Any, hidden: Any
) -> None:
    """The same from the features themselves, an exponential a channel."""
    lanes()
    one, far = room.dtype.type(1), room.dtype.type(FAR)
    s, i, k = np.uint64(to), np.uint64(query), np.uint64(key)
    for h in range(np.uint64(hidden)):
        room[s + h] = reciprocal(queries[i + h] + features[k + h], one, far)


@inner_sum
def total_of(weight: Any, room: Any, at: Any, hidden: Any) -> Any:
    """sum_h w_h (1 - 2 r_h)."""
    lanes()
    one, total = room.dtype.type(1), room.dtype.type(0)
    for h in range(np.uint64(hidden)):
        r = room[np.uint64(at) + h]
        total += weight[h] * (one - (r + r))
    return total


@inner
def softmax(weights: Any, at: Any, readable: Any, start: Any, keys: Any, peak: Any) -> None:
    """Scores into weights; all 0 where nothing may be read."""
    total = 0.0
    for j in range(keys):
        if readable[start + j] != 0:
            power = exponential(weights[at + j] - weights.dtype.type(peak))
            weights[at + j] = power
            total += power
        else:
            weights[at + j] = 0
    inverse = weights.dtype.type(1.0 / total) if total != 0 else weights.dtype.type(0)
    for j in range(keys):
        weights[at + j] *= inverse


@inner
def blend(
    row: Any, start: Any, values: Any, weights: Any, contexts: Any, keys: Any, width: Any
) -> None:
    """sum_j p_j v_j."""
    for d in range(width):
        contexts[row * width + d] = 0
    for j in range(keys):
        weight = weights[row * keys + j]
        if weight != 0:
            add_scaled(contexts, row * width, values, (start + j) * width, weight, width)


@inner
def add_scaled(total: Any, to: Any, part: Any, at: Any, factor: Any, n: Any) -> None:
    lanes()
    s, k = np.uint64(to), np.uint64(at)
    for d in range(np.uint64(n)):
        total[s + d] += factor * part[k + d]


@inner
def through_tanh(
    room: Any,
    at: Any,
    weight: Any,
    slope: Any,
    query_slopes: Any,
    to: Any,
    key_slopes: Any,
    key: Any,
    weight_slopes: Any,
    row: Any,
    hidden: Any,
) -> None:
    """What one key adds, by 1 - tanh^2 = 4 r (1 - r)."""
    lanes()
    s, q, k, u = np.uint64(at), np.uint64(to), np.uint64(key), np.uint64(row)
    one, four = room.dtype.type(1), room.dtype.type(4)
    for h in range(np.uint64(hidden)):
        r = room[s + h]
        part = (four * slope * weight[h]) * (r * (one - r))
        query_slopes[q + h] += part
        key_slopes[k + h] += part
        weight_slopes[u + h] += slope * (one - (r + r))
