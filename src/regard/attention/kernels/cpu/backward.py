"""The gradients: weights are computed anew from the peak and total of each row.

    dp_j = upstream . v_j,   dz_j = p_j (dp_j - upstream . reading),   dv_j = sum_i p_j upstream
    dbias = dz / T,   dscore = dz / T (1 - (capped / cap)^2)

Each worker adds up gradients of keys, values and weights in arrays of its own (`slots` says where),
in an order that depends on nothing but the number of workers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from regard.attention.kernels.cpu.exponentials import BLOCK, GROUP, STRIDE, clear
from regard.attention.kernels.cpu.forward import (
    ASKING,
    BIAS,
    MASK,
    SPAN,
    STORED,
    A,
    C,
    V,
    W,
    load_tile,
    score_tile,
)
from regard.attention.kernels.cpu.hidden import ROWS
from regard.attention.kernels.cpu.machine import SUMS, compiled, inner, lanes, scratch
from regard.attention.kernels.cpu.rows import block_span, weigh
from regard.attention.kernels.cpu.slopes import slopes_of_channels
from regard.attention.kernels.cpu.values import value_gradient, weight_gradient

STRETCH = 4 * ROWS  # queries between two writes of the keys' gradient


@inner(flags=SUMS)
def dot(left: Any, at: Any, right: Any, to: Any, n: Any) -> Any:
    lanes()
    i, j = np.uint64(at), np.uint64(to)
    total = left.dtype.type(0)
    for d in range(np.uint64(n)):
        total += left[i + d] * right[j + d]
    return total


@inner
def through_softmax(e: Any, p: Any, to: Any, n: Any, mean: Any, factor: Any) -> None:
    """dz / T from dp, in place; nothing where the weight is nothing."""
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
def add(total: Any, to: Any, part: Any, at: Any, n: Any) -> None:
    lanes()
    s, k = np.uint64(to), np.uint64(at)
    for j in range(np.uint64(n)):
        total[s + j] += part[k + j]


@inner(flags=SUMS)
def sum_of(row: Any, at: Any, n: Any) -> Any:
    lanes()
    total = 0.0
    for j in range(np.uint64(n)):
        total += np.float64(row[np.uint64(at) + j])
    return total


@inner
def write_scaled(total: Any, to: Any, part: Any, at: Any, n: Any, factor: Any) -> None:
    lanes()
    s, k = np.uint64(to), np.uint64(at)
    for j in range(np.uint64(n)):
        total[s + j] += factor * part[k + j]
        part[k + j] = 0


@inner
def bias_gradient(slope: Any, query: Any, first: Any, e: Any, at: Any, n: Any) -> None:
    i = query if slope.shape[0] > 1 else 0
    if slope.shape[1] > 1:
        add(slope[i], first, e, at, n)
    else:
        slope[i, 0] += sum_of(e, at, n)


@compiled
def backward(
    start: int,
    stop: int,
    where: Any,
    slots: Any,
    a: Any,
    c: Any,
    w: Any,
    scales: Any,
    sums: Any,
    v: Any,
    middle: Any,
    spread: Any,
    top: Any,
    turned: Any,
    low: Any,
    high: Any,
    bias: Any,
    mask: Any,
    asking: Any,
    stored: Any,
    keys: int,
    hidden: int,
    width: int,
    cap: float,
    factor: float,
    limit: Any,
    out: Any,
    peaks: Any,
    totals: Any,
    upstream: Any,
    slope_a: Any,
    slope_c: Any,
    slope_w: Any,
    slope_v: Any,
    slope_bias: Any,
) -> None:
    """Gradients of stretches start to stop, counted through the whole batch."""
    queries, padded = peaks.shape[1], w.shape[1]
    wide = (width + 7) // 8 * 8
    stretches = (queries + STRETCH - 1) // STRETCH
    dtype = out.dtype
    p, e = scratch(ROWS * STRIDE, out), scratch(ROWS * STRIDE, out)
    kept = scratch(ROWS * STRIDE if cap != 0.0 else 1, out)
    raw = scratch(GROUP * STRIDE, out)
    tiles = STRETCH // ROWS
    powers = scratch(STRETCH * padded, out).reshape((tiles, ROWS * padded))
    plain = scratch(STRETCH * padded, out).reshape((tiles, ROWS * padded))
    for_a = scratch(STRETCH * padded, out).reshape((tiles, ROWS * padded))
    for_c = scratch(padded * STRIDE, out)
    clear(for_c, 0, for_c.size)
    for_w = np.zeros(padded, np.float64)
    coming = scratch(STRETCH * width, out).reshape((tiles, ROWS * width))
    means, inverses = np.zeros(STRETCH, dtype), np.zeros(STRETCH, dtype)
    four = dtype.type(4)
    for item in range(start, stop):
        entry, first = item // stretches, item % stretches * STRETCH
        at, slot = where[entry], slots[entry]
        count = min(STRETCH, queries - first)
        ours, theirs = low[at[SPAN]], high[at[SPAN]]
        weights = w[at[W]]
        begin, end = keys, 0
        for tile in range(tiles):
            clear(coming[tile], 0, ROWS * width)
            clear(for_a[tile], 0, ROWS * padded)
        clear(for_w, 0, padded)
        score_sum = 0.0
        for i in range(count):
            query = first + i
            begin, end = min(begin, ours[query]), max(end, theirs[query])
            tile, row = i // ROWS, i % ROWS
            for d in range(width):
                coming[tile, row * width + d] = upstream[entry, query * width + d]
            means[i] = dot(upstream[entry], query * width, out[entry], query * width, width)
            total = totals[entry, query]
            inverses[i] = 1 / total if total != 0 else 0
        for tile in range((count + ROWS - 1) // ROWS):
            rows = min(ROWS, count - tile * ROWS)
            load_tile(
                a[at[A]],
                first + tile * ROWS,
                rows,
                hidden,
                padded,
                middle[at[C]],
                powers[tile],
                plain[tile],
            )
        for block in range(begin // BLOCK, (end + BLOCK - 1) // BLOCK):
            edge, border = block_span(begin, end, block)
            if border <= edge:
                continue
            position = block * BLOCK
            for tile in range((count + ROWS - 1) // ROWS):
                corner = first + tile * ROWS
                rows = min(ROWS, queries - corner)
                low_, high_ = ours[corner], theirs[corner]
                for row in range(1, rows):
                    low_ = min(low_, ours[corner + row])
                    high_ = max(high_, theirs[corner + row])
                left, right = block_span(low_, high_, block)
                if right <= left:
                    continue
                n, inside = right - left, min(right, keys - position) - left
                clear(p, 0, p.size)
                score_tile(
                    p,
                    rows,
                    corner,
                    block,
                    left,
                    right,
                    powers[tile],
                    plain[tile],
                    spread[at[C]],
                    top[at[C]],
                    c[at[C]],
                    weights,
                    scales[at[W]],
                    sums[at[W]],
                    ours,
                    theirs,
                    bias[at[BIAS]],
                    mask[at[MASK]],
                    asking[at[ASKING]],
                    stored[at[STORED]],
                    keys,
                    hidden,
                    padded,
                    cap,
                    factor,
                    limit,
                    raw,
                    kept,
                )
                for row in range(rows):
                    i = tile * ROWS + row
                    weigh(p, row * STRIDE + left, n, peaks[entry, corner + row], inverses[i])
                value_gradient(
                    slope_v[slot[2]],
                    (position + left) * width,
                    p,
                    left,
                    inside,
                    coming[tile],
                    width,
                )
                weight_gradient(
                    e,
                    rows,
                    left,
                    n,
                    coming[tile],
                    width,
                    wide,
                    turned[at[V]],
                    block * wide * STRIDE,
                )
                for row in range(rows):
                    to = row * STRIDE + left
                    through_softmax(e, p, to, n, means[tile * ROWS + row], dtype.type(factor))
                    if slope_bias.shape[1] > 0:
                        bias_gradient(
                            slope_bias[slot[3]], corner + row, position + left, e, to, inside
                        )
                    if cap != 0.0:
                        through_cap(e, kept, to, n, cap)
                    score_sum += sum_of(e, to, n)
                if rows % 2:
                    clear(e, rows * STRIDE + left, n)
                slopes_of_channels(
                    e,
                    rows,
                    powers[tile],
                    plain[tile],
                    spread[at[C]],
                    top[at[C]],
                    c[at[C]],
                    keys,
                    hidden,
                    padded,
                    limit,
                    block,
                    left,
                    right,
                    raw,
                    for_a[tile],
                    for_c,
                    for_w,
                )
            for h in range(hidden):
                write_scaled(
                    slope_c[slot[1]],
                    (block * padded + h) * STRIDE + edge,
                    for_c,
                    h * STRIDE + edge,
                    border - edge,
                    four * weights[h],
                )
            clear(for_c, hidden * STRIDE, (padded - hidden) * STRIDE)
        for i in range(count):
            tile, row = i // ROWS, i % ROWS
            for h in range(hidden):
                slope_a[slot[0], (first + i) * hidden + h] += (
                    four * weights[h] * for_a[tile, row * padded + h]
                )
        for h in range(hidden):
            slope_w[at[W], h] += score_sum - 2 * for_w[h]
