"""The gradients, without atomics: one program adds up all of a gradient, in one order.

    p = exp(z - norm),  dp = upstream . v,  dz = p (dp - upstream . reading)
    ds = dz / T (1 - (cap(s) / cap)^2), the last factor where there is a cap
    da_h = w_h sum_keys ds 4 r (1 - r),   dc_h = w_h sum_queries ds 4 r (1 - r)
    dw_h = sum ds (1 - 2 r),   dv = sum_queries p upstream

One kernel goes over blocks of queries (a, and w as a part for each block), one over blocks of keys
(c and v). Both add to rows of gradients in memory that no other program touches; a barrier comes
before they are read again, as another thread of the program may have written them.
"""

import triton
import triton.language as tl

from regard.attention.kernels.additive.triton.tiles import (
    load_values,
    pointers_of,
    reciprocal_tile,
    score_tile,
    span_of,
    weigh_tile,
)


@triton.jit
def gradient_tile(
    weights, upstream, v, means, rows, columns, queries, keys, width, factor, WIDE: tl.constexpr
):
    """dz / T of a tile."""
    gradients = tl.zeros((rows.shape[0], columns.shape[0]), tl.float32)
    for start in range(0, width, WIDE):
        wide = start + tl.arange(0, WIDE)
        coming = load_values(upstream, rows, queries, wide, width)
        values = load_values(v, columns, keys, wide, width)
        gradients += tl.dot(coming, tl.trans(values), input_precision="ieee")
    mean = tl.load(means + rows, mask=rows < queries, other=0.0)
    return weights * (gradients - mean[:, None]) * factor


@triton.jit
def backward(
    where, a, c, w, v, spans, asking, stored,
    mask, mask_entry, mask_row, mask_column, bias, bias_entry, bias_row, bias_column,
    norms, upstream, means, for_a, for_w, for_c, for_v, queries, keys, hidden, width, factor, cap,
    DOCUMENTS: tl.constexpr, MASK: tl.constexpr, BIAS: tl.constexpr, CAPPED: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, WIDE: tl.constexpr, BY_KEYS: tl.constexpr,
):  # fmt: skip
    """Program (block of queries, or of keys, and batch entry); by keys also a stretch of width."""
    block = tl.program_id(0)
    entry = tl.program_id(1).to(tl.int64)
    a, c, w, v, low, high, asking, stored, mask, bias = pointers_of(
        entry, where, a, c, w, v, spans, asking, stored, mask, mask_entry, bias, bias_entry,
        queries, keys, hidden, width,
    )  # fmt: skip
    norms += entry * 2 * queries
    means += entry * queries
    upstream += entry * queries * width
    for_a += entry * hidden * queries
    for_c += entry * hidden * keys
    for_v += entry * keys * width
    for_w += (entry * tl.num_programs(0) + block) * hidden
    stretch = tl.program_id(2) * WIDE + tl.arange(0, WIDE)
    blend = tl.zeros((COLUMNS, WIDE), tl.float32)
    rows = block * ROWS + tl.arange(0, ROWS)
    columns = block * COLUMNS + tl.arange(0, COLUMNS)
    if BY_KEYS:
        begin, end, step = 0, queries, ROWS
    else:
        begin, end = span_of(low, high, rows, queries, keys)
        begin, step = begin // COLUMNS * COLUMNS, COLUMNS
    for position in range(begin, end, step):
        if BY_KEYS:
            rows = position + tl.arange(0, ROWS)
            first, after = span_of(low, high, rows, queries, keys)
            reached = (after > block * COLUMNS) & (first < (block + 1) * COLUMNS)
        else:
            columns = position + tl.arange(0, COLUMNS)
            reached = position < keys
        if reached:
            capped, scores = score_tile(
                a, c, w, rows, columns, queries, keys, hidden, cap, low, high, asking, stored,
                mask, mask_row, mask_column, bias, bias_row, bias_column,
                DOCUMENTS, MASK, BIAS, CAPPED,
            )  # fmt: skip
            weights = weigh_tile(scores, norms, rows, queries, factor)
            if BY_KEYS:
                coming = load_values(upstream, rows, queries, stretch, width)
                blend += tl.dot(tl.trans(weights), coming, input_precision="ieee")
            if tl.program_id(2) == 0:
                gradients = gradient_tile(
                    weights, upstream, v, means, rows, columns, queries, keys, width, factor, WIDE
                )
                if CAPPED:
                    gradients *= 1.0 - (capped / cap) * (capped / cap)
                tl.debug_barrier()
                for h in range(hidden):
                    weight = tl.load(w + h)
                    asked = tl.load(a + h * queries + rows, mask=rows < queries, other=0.0)
                    held = tl.load(c + h * keys + columns, mask=columns < keys, other=0.0)
                    half = reciprocal_tile(asked, held)
                    gradient = 4.0 * weight * gradients * half * (1.0 - half)
                    if BY_KEYS:
                        to = for_c + h * keys + columns
                        sums = tl.load(to, mask=columns < keys, other=0.0) + tl.sum(gradient, 0)
                        tl.store(to, sums, mask=columns < keys)
                    else:
                        to = for_a + h * queries + rows
                        sums = tl.load(to, mask=rows < queries, other=0.0) + tl.sum(gradient, 1)
                        tl.store(to, sums, mask=rows < queries)
                        part = tl.sum(tl.sum(gradients * (1.0 - 2.0 * half), 1), 0)
                        tl.store(for_w + h, tl.load(for_w + h) + part)
    if BY_KEYS:
        place = columns[:, None].to(tl.int64) * width + stretch[None, :]
        inside = (columns < keys)[:, None] & (stretch < width)[None, :]
        tl.store(for_v + place, blend, mask=inside)
