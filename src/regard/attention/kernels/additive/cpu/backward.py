"""The gradients: weights are computed anew from the peak and total of each row.

    dp_j = upstream . v_j,   dz_j = p_j (dp_j - upstream . reading),   dv_j = sum_i p_j upstream
    dbias = dz / T,   dscore = dz / T (1 - (capped / cap)^2)

Each worker adds up gradients of keys, values and weights in arrays of its own (`slots` says where),
in an order that depends on nothing but the number of workers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from regard.attention.kernels.additive.cpu.channel_gradients import channel_gradients
from regard.attention.kernels.additive.cpu.features import BLOCK, STRIDE, STRIP
from regard.attention.kernels.additive.cpu.forward import (
    SPAN,
    C,
    Inputs,
    Spread,
    V,
    W,
    fill,
    fill_values,
    load_tile,
    reach,
    score_tile,
)
from regard.attention.kernels.additive.cpu.hidden import ROWS
from regard.attention.kernels.additive.cpu.rows import block_span, weigh
from regard.attention.kernels.additive.cpu.score_gradients import (
    bias_gradient,
    hand_over,
    through_cap,
    through_softmax,
    write_scaled,
)
from regard.attention.kernels.additive.cpu.values import value_gradient, weight_gradient
from regard.loops.compiling import compiled, written_out
from regard.loops.rows import add_product, clear, copy, dot, sum_of

STRETCH = 4 * ROWS  # queries between two writes of the keys' gradient


class BackwardBuffers(NamedTuple):
    """Where one worker writes a stretch down: tiles first."""

    p: Any
    e: Any
    raw: Any
    room: Any
    kept: Any
    powers: Any
    plain: Any
    scaled: Any
    for_a: Any
    for_c: Any
    for_w: Any  # float64
    for_keys: Any  # of all blocks of one entry
    coming: Any
    means: Any
    inverses: Any


class Gradients(NamedTuple):
    """The gradients, entries (or a worker's parts of them) first."""

    a: Any
    c: Any
    w: Any  # float64, this worker's
    v: Any
    bias: Any


@written_out
def load_stretch(
    inputs: Any,
    middle: Any,
    buffers: Any,
    entry: Any,
    first: Any,
    count: Any,
    out: Any,
    totals: Any,
    upstream: Any,
) -> None:
    """The exponentials of a stretch's queries, and the factors of its softmax."""
    at, width, padded = inputs.where[entry], inputs.width, inputs.w.shape[1]
    for tile in range(STRETCH // ROWS):
        clear(buffers.coming[tile], 0, ROWS * width)
        clear(buffers.for_a[tile], 0, ROWS * padded)
        corner, rows = first + tile * ROWS, min(ROWS, count - tile * ROWS)
        if rows > 0:
            load_tile(
                inputs,
                at,
                corner,
                rows,
                middle,
                buffers.powers[tile],
                buffers.plain[tile],
                buffers.scaled[tile],
            )
    clear(buffers.for_w, 0, padded)
    for i in range(count):
        start = (first + i) * width
        copy(buffers.coming[i // ROWS], i % ROWS * width, upstream[entry], start, width)
        buffers.means[i] = dot(upstream[entry], start, out[entry], start, width)
        total = totals[entry, first + i]
        buffers.inverses[i] = 1 / total if total != 0 else 0


@written_out
def score_gradients(
    inputs: Any,
    spread: Any,
    buffers: Any,
    gradients: Any,
    at: Any,
    slot: Any,
    place: Any,
    turned: Any,
    tile: Any,
    corner: Any,
    rows: Any,
    block: Any,
    left: Any,
    right: Any,
    peaks: Any,
) -> float:
    """Write the weights to p and the gradients of the scores to e; return the sum of e."""
    p, e, width, n = buffers.p, buffers.e, inputs.width, right - left
    position = block * BLOCK + left
    inside = min(n, inputs.keys - position)
    coming, wide = buffers.coming[tile], (width + 7) // 8 * 8
    clear(p, 0, p.size)
    score_tile(
        inputs,
        spread,
        at,
        place,
        corner,
        rows,
        block,
        left,
        right,
        buffers.powers[tile],
        buffers.plain[tile],
        buffers.scaled[tile],
        p,
        buffers.raw,
        buffers.kept,
    )
    for row in range(rows):
        weigh(p, row * STRIDE + left, n, peaks[corner + row], buffers.inverses[tile * ROWS + row])
    value_gradient(gradients.v[slot[2]], position * width, p, left, inside, coming, width)
    weight_gradient(e, left, n, coming, width, turned, wide, position * wide)
    total = 0.0
    for row in range(rows):
        to = row * STRIDE + left
        through_softmax(e, p, to, n, buffers.means[tile * ROWS + row], p.dtype.type(inputs.factor))
        if gradients.bias.shape[1] > 0:
            bias_gradient(gradients.bias[slot[3]], corner + row, position, e, to, inside)
        if inputs.cap != 0.0:
            through_cap(e, buffers.kept, to, n, inputs.cap)
        total += sum_of(e, to, n)
    return total


@written_out
def stretch(
    inputs: Any,
    spread: Any,
    buffers: Any,
    gradients: Any,
    at: Any,
    slot: Any,
    place: Any,
    turned: Any,
    first: Any,
    count: Any,
    peaks: Any,
) -> float:
    """Gradients of the stretch in the buffers; returns the sum of the gradients of its scores."""
    hidden, padded = inputs.hidden, inputs.w.shape[1]
    low, high, weights = inputs.low[at[SPAN]], inputs.high[at[SPAN]], inputs.w[at[W]]
    four, total = peaks.dtype.type(4), 0.0
    begin, end = reach(low, high, first, count)
    for block in range(begin // BLOCK, (end + BLOCK - 1) // BLOCK):
        edge, border = block_span(begin, end, block)
        if border <= edge:
            continue
        for tile in range((count + ROWS - 1) // ROWS):
            corner, rows = first + tile * ROWS, min(ROWS, count - tile * ROWS)
            low_, high_ = reach(low, high, corner, rows)
            left, right = block_span(low_, high_, block)
            if right <= left:
                continue
            total += score_gradients(
                inputs,
                spread,
                buffers,
                gradients,
                at,
                slot,
                place,
                turned,
                tile,
                corner,
                rows,
                block,
                left,
                right,
                peaks,
            )
            channel_gradients(
                buffers.e,
                rows,
                buffers.powers[tile],
                buffers.plain[tile],
                spread.powers[place],
                spread.top[place],
                inputs.c[at[C]],
                inputs.keys,
                hidden,
                padded,
                inputs.ceiling,
                block,
                left,
                right,
                buffers.raw,
                buffers.for_a[tile],
                buffers.for_c,
                buffers.for_w,
                buffers.room,
            )
        for column in range(edge, border, STRIP):
            for h in range(padded):
                of = column * padded + h * STRIP
                to = block * BLOCK * padded + of
                write_scaled(buffers.for_keys, to, buffers.for_c, of, STRIP, four * weights[h])
    return total


@compiled
def backward(
    start: int,
    stop: int,
    inputs: Inputs,
    spread: Spread,
    buffers: BackwardBuffers,
    slots: Any,
    gradients: Gradients,
    out: Any,
    peaks: Any,
    totals: Any,
    upstream: Any,
) -> None:
    """Gradients of stretches start to stop, counted through the whole batch."""
    queries, keys, hidden, padded = peaks.shape[1], inputs.keys, inputs.hidden, inputs.w.shape[1]
    runs = (queries + STRETCH - 1) // STRETCH
    four, key, value, owner = out.dtype.type(4), -1, -1, -1
    clear(buffers.for_c, 0, buffers.for_c.size)
    clear(buffers.for_keys, 0, buffers.for_keys.size)
    for item in range(start, stop):
        entry, first = item // runs, item % runs * STRETCH
        at, slot = inputs.where[entry], slots[entry]
        count = min(STRETCH, queries - first)
        place, turned = (at[C], at[V]) if spread.ready else (0, 0)
        if not spread.ready and at[C] != key:
            key = at[C]
            fill(inputs, spread, key, 0)
        if not spread.ready and at[V] != value:
            value = at[V]
            fill_values(inputs, spread, value, 0)
        if owner >= 0 and owner != slot[1]:
            hand_over(gradients.c[owner], buffers.for_keys, keys, hidden, padded)
        owner = slot[1]
        load_stretch(
            inputs, spread.middle[place], buffers, entry, first, count, out, totals, upstream
        )
        total = stretch(
            inputs,
            spread,
            buffers,
            gradients,
            at,
            slot,
            place,
            spread.turned[turned],
            first,
            count,
            peaks[entry],
        )
        weights = inputs.w[at[W]]
        for i in range(count):
            part = buffers.for_a[i // ROWS]
            row = (first + i) * hidden
            add_product(gradients.a[slot[0]], row, part, i % ROWS * padded, weights, hidden, four)
        for h in range(hidden):
            gradients.w[at[W], h] += total - 2 * buffers.for_w[h]
    if owner >= 0:
        hand_over(gradients.c[owner], buffers.for_keys, keys, hidden, padded)
