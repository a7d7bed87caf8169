"""The gradients: weights are computed anew from the peak and total of each row.

    dp_j = upstream . v_j,   dz_j = p_j (dp_j - upstream . reading),   dv_j = sum_i p_j upstream
    dbias = dz / T,   dscore = dz / T (1 - (capped / cap)^2)

Each worker adds up gradients of keys, values and weights in arrays of its own (`slots` says where),
in an order that depends on nothing but the number of workers.
"""

from typing import Any

import numpy as np

from regard.attention.kernels.additive.cpu.channel_gradients import channel_gradients
from regard.attention.kernels.additive.cpu.features import BLOCK, STRIDE, STRIP, raise_to
from regard.attention.kernels.additive.cpu.forward import load_tile, score_tile
from regard.attention.kernels.additive.cpu.hidden import ROWS
from regard.attention.kernels.additive.cpu.layout import Buffers, Gradients, Inputs, W, entry_of
from regard.attention.kernels.additive.cpu.rows import block_span, reach, weigh
from regard.attention.kernels.additive.cpu.values import value_gradient, weight_gradient
from regard.loops.compiling import compiled, inner, lanes, written_out
from regard.loops.rows import add, add_product, clear, copy, dot, sum_of


@inner
def through_softmax(e: Any, p: Any, to: Any, n: Any, mean: Any, factor: Any) -> None:
    """dz / T from dp, in place; 0 where the weight is 0."""
    lanes()
    s, zero = np.uint64(to), e.dtype.type(0)
    for j in range(np.uint64(n)):
        x = p[s + j] * (e[s + j] - mean) * factor
        e[s + j] = x if p[s + j] != zero else zero


@inner
def through_cap(e: Any, capped: Any, to: Any, n: Any, cap: Any) -> None:
    lanes()
    s, one, inverse = np.uint64(to), e.dtype.type(1), e.dtype.type(1.0 / cap)
    for j in range(np.uint64(n)):
        y = capped[s + j] * inverse
        e[s + j] *= one - y * y


@inner
def hand_over(gradient: Any, part: Any, inputs: Any, weight: Any) -> None:
    """Add a worker's part of the keys' gradient, strip by strip, to keys x hidden; clear it."""
    keys, hidden, padded = inputs.all.keys, inputs.all.hidden, inputs.all.weights.shape[1]
    four = part.dtype.type(4)
    for first in range(0, keys, STRIP):
        for h in range(hidden):
            at, factor = first * padded + h * STRIP, four * inputs.all.weights[weight, h]
            for k in range(min(STRIP, keys - first)):
                gradient[(first + k) * hidden + h] += factor * part[at + k]
                part[at + k] = 0


@written_out
def score_gradients(
    entry: Any, buffers: Any, tile: Any, span: Any, peaks: Any, for_v: Any, for_bias: Any
) -> float:
    """The weights, and from them the gradients of the scores, in `errors`; returns their sum."""
    p, e, coming = buffers.scores, buffers.errors, buffers.reading
    width, left = entry.width, span.left
    n, key, wide = span.right - left, span.begin + left, (width + 7) // 8 * 8
    inside = min(n, entry.keys - key)
    clear(p, 0, p.size)
    score_tile(entry, buffers, tile, span)
    for row in range(tile.rows):
        weigh(p, row * STRIDE + left, n, peaks[tile.first + row], buffers.total[row])
    value_gradient(for_v, key * width, p, left, inside, coming, width)
    weight_gradient(e, left, n, coming, width, entry.turned, wide, key * wide)
    total = 0.0
    for row in range(tile.rows):
        to = row * STRIDE + left
        through_softmax(e, p, to, n, buffers.peak[row], p.dtype.type(entry.factor))
        i = tile.first + row if for_bias.shape[0] > 1 else 0
        if for_bias.shape[1] > 1:
            add(for_bias[i], key, e, to, inside)
        elif for_bias.shape[1] > 0:
            for_bias[i, 0] += sum_of(e, to, inside)
        if entry.cap != 0.0:
            through_cap(e, buffers.kept, to, n, entry.cap)
        total += sum_of(e, to, n)
    return total


@compiled
def backward(
    start: int,
    stop: int,
    inputs: Inputs,
    buffers: Buffers,
    slots: Any,
    gradients: Gradients,
    out: Any,
    peaks: Any,
    totals: Any,
    upstream: Any,
) -> None:
    """Gradients of tiles start to stop, counted through the whole batch."""
    hidden, width, padded = inputs.all.hidden, inputs.all.width, inputs.all.weights.shape[1]
    tiles = (inputs.all.queries + ROWS - 1) // ROWS
    four, owner, weight = out.dtype.type(4), -1, -1
    clear(buffers.for_keys, 0, buffers.for_keys.size)
    for item in range(start, stop):
        index = item // tiles
        entry, slot = entry_of(inputs, index), slots[index]
        if owner >= 0 and (owner != slot[1] or weight != inputs.where[index, W]):
            hand_over(gradients.c[owner], buffers.for_keys, inputs, weight)
        owner, weight = slot[1], inputs.where[index, W]
        tile = load_tile(entry, buffers, item % tiles * ROWS)
        clear(tile.powers, ROWS * padded, padded)
        for row in range(tile.rows):
            raise_to(tile.powers, ROWS * padded, tile.powers, row * padded, padded)
        first = tile.first * width
        clear(buffers.reading, 0, ROWS * width)
        copy(buffers.reading, 0, upstream[index], first, tile.rows * width)
        for row in range(tile.rows):
            at, total = first + row * width, totals[index, tile.first + row]
            buffers.peak[row] = dot(upstream[index], at, out[index], at, width)
            buffers.total[row] = 1 / total if total != 0 else 0
        clear(buffers.for_a, 0, ROWS * padded)
        clear(buffers.for_w, 0, padded)
        sum_, (begin, end) = 0.0, reach(entry, tile.first, tile.rows)
        for block in range(begin // BLOCK, (end + BLOCK - 1) // BLOCK):
            span = block_span(entry, tile, begin, end, block)
            if span.right > span.left:
                for_v, for_bias = gradients.v[slot[2]], gradients.bias[slot[3]]
                sum_ += score_gradients(entry, buffers, tile, span, peaks[index], for_v, for_bias)
                channel_gradients(buffers, entry, tile, span)
        for row in range(tile.rows):
            to = (tile.first + row) * hidden
            part, at = buffers.for_a, row * padded
            add_product(gradients.a[slot[0]], to, part, at, entry.weights, hidden, four)
        for h in range(hidden):
            gradients.w[weight, h] += sum_ - 2 * buffers.for_w[h]
    if owner >= 0:
        hand_over(gradients.c[owner], buffers.for_keys, inputs, weight)
