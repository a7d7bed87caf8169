"""The gradients: weights are computed anew from the peak and total of each row.

    dp_j = upstream . v_j,   dz_j = p_j (dp_j - upstream . reading),   dv_j = sum_i p_j upstream
    dbias = dz / T,   dscore = dz / T (1 - (capped / cap)^2)

Each worker adds up gradients of keys, values and weights in arrays of its own (`slots` says where),
in an order that depends on nothing but the number of workers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from regard.attention.kernels.additive.cpu.chain import (
    bias_gradient,
    hand_over,
    through_cap,
    through_softmax,
    write_scaled,
)
from regard.attention.kernels.additive.cpu.channels import slopes_of_channels
from regard.attention.kernels.additive.cpu.features import BLOCK, STRIDE, STRIP
from regard.attention.kernels.additive.cpu.forward import (
    SPAN,
    C,
    Given,
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
from regard.attention.kernels.additive.cpu.values import value_gradient, weight_gradient
from regard.loops.compiling import compiled, written_out
from regard.loops.rows import add_product, clear, copy, dot, sum_of

STRETCH = 4 * ROWS  # queries between two writes of the keys' gradient


class Bench(NamedTuple):
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


class Slopes(NamedTuple):
    """The gradients, entries (or a worker's parts of them) first."""

    a: Any
    c: Any
    w: Any  # float64, this worker's
    v: Any
    bias: Any


@written_out
def load_stretch(
    given: Any,
    middle: Any,
    bench: Any,
    entry: Any,
    first: Any,
    count: Any,
    out: Any,
    totals: Any,
    upstream: Any,
) -> None:
    """The exponentials of a stretch's queries, and what its softmax needs."""
    at, width, padded = given.where[entry], given.width, given.w.shape[1]
    for tile in range(STRETCH // ROWS):
        clear(bench.coming[tile], 0, ROWS * width)
        clear(bench.for_a[tile], 0, ROWS * padded)
        corner, rows = first + tile * ROWS, min(ROWS, count - tile * ROWS)
        if rows > 0:
            load_tile(
                given,
                at,
                corner,
                rows,
                middle,
                bench.powers[tile],
                bench.plain[tile],
                bench.scaled[tile],
            )
    clear(bench.for_w, 0, padded)
    for i in range(count):
        start = (first + i) * width
        copy(bench.coming[i // ROWS], i % ROWS * width, upstream[entry], start, width)
        bench.means[i] = dot(upstream[entry], start, out[entry], start, width)
        total = totals[entry, first + i]
        bench.inverses[i] = 1 / total if total != 0 else 0


@written_out
def slopes_of_scores(
    given: Any,
    spread: Any,
    bench: Any,
    slopes: Any,
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
    """Weights, and in place of their gradients those of the scores; returns the sum of these."""
    p, e, width, n = bench.p, bench.e, given.width, right - left
    position = block * BLOCK + left
    inside = min(n, given.keys - position)
    coming, wide = bench.coming[tile], (width + 7) // 8 * 8
    clear(p, 0, p.size)
    score_tile(
        given,
        spread,
        at,
        place,
        corner,
        rows,
        block,
        left,
        right,
        bench.powers[tile],
        bench.plain[tile],
        bench.scaled[tile],
        p,
        bench.raw,
        bench.kept,
    )
    for row in range(rows):
        weigh(p, row * STRIDE + left, n, peaks[corner + row], bench.inverses[tile * ROWS + row])
    value_gradient(slopes.v[slot[2]], position * width, p, left, inside, coming, width)
    weight_gradient(e, left, n, coming, width, turned, wide, position * wide)
    total = 0.0
    for row in range(rows):
        to = row * STRIDE + left
        through_softmax(e, p, to, n, bench.means[tile * ROWS + row], p.dtype.type(given.factor))
        if slopes.bias.shape[1] > 0:
            bias_gradient(slopes.bias[slot[3]], corner + row, position, e, to, inside)
        if given.cap != 0.0:
            through_cap(e, bench.kept, to, n, given.cap)
        total += sum_of(e, to, n)
    return total


@written_out
def stretch(
    given: Any,
    spread: Any,
    bench: Any,
    slopes: Any,
    at: Any,
    slot: Any,
    place: Any,
    turned: Any,
    first: Any,
    count: Any,
    peaks: Any,
) -> float:
    """Gradients of a stretch that lies on the bench; returns the sum of those of its scores."""
    hidden, padded = given.hidden, given.w.shape[1]
    low, high, weights = given.low[at[SPAN]], given.high[at[SPAN]], given.w[at[W]]
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
            total += slopes_of_scores(
                given,
                spread,
                bench,
                slopes,
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
            slopes_of_channels(
                bench.e,
                rows,
                bench.powers[tile],
                bench.plain[tile],
                spread.powers[place],
                spread.top[place],
                given.c[at[C]],
                given.keys,
                hidden,
                padded,
                given.ceiling,
                block,
                left,
                right,
                bench.raw,
                bench.for_a[tile],
                bench.for_c,
                bench.for_w,
                bench.room,
            )
        for column in range(edge, border, STRIP):
            for h in range(padded):
                of = column * padded + h * STRIP
                to = block * BLOCK * padded + of
                write_scaled(bench.for_keys, to, bench.for_c, of, STRIP, four * weights[h])
    return total


@compiled
def backward(
    start: int,
    stop: int,
    given: Given,
    spread: Spread,
    bench: Bench,
    slots: Any,
    slopes: Slopes,
    out: Any,
    peaks: Any,
    totals: Any,
    upstream: Any,
) -> None:
    """Gradients of stretches start to stop, counted through the whole batch."""
    queries, keys, hidden, padded = peaks.shape[1], given.keys, given.hidden, given.w.shape[1]
    runs = (queries + STRETCH - 1) // STRETCH
    four, key, value, owner = out.dtype.type(4), -1, -1, -1
    clear(bench.for_c, 0, bench.for_c.size)
    clear(bench.for_keys, 0, bench.for_keys.size)
    for item in range(start, stop):
        entry, first = item // runs, item % runs * STRETCH
        at, slot = given.where[entry], slots[entry]
        count = min(STRETCH, queries - first)
        place, turned = (at[C], at[V]) if spread.ready else (0, 0)
        if not spread.ready and at[C] != key:
            key = at[C]
            fill(given, spread, key, 0)
        if not spread.ready and at[V] != value:
            value = at[V]
            fill_values(given, spread, value, 0)
        if owner >= 0 and owner != slot[1]:
            hand_over(slopes.c[owner], bench.for_keys, keys, hidden, padded)
        owner = slot[1]
        load_stretch(given, spread.middle[place], bench, entry, first, count, out, totals, upstream)
        total = stretch(
            given,
            spread,
            bench,
            slopes,
            at,
            slot,
            place,
            spread.turned[turned],
            first,
            count,
            peaks[entry],
        )
        weights = given.w[at[W]]
        for i in range(count):
            part = bench.for_a[i // ROWS]
            row = (first + i) * hidden
            add_product(slopes.a[slot[0]], row, part, i % ROWS * padded, weights, hidden, four)
        for h in range(hidden):
            slopes.w[at[W], h] += total - 2 * bench.for_w[h]
    if owner >= 0:
        hand_over(slopes.c[owner], bench.for_keys, keys, hidden, padded)
