"""The gradients of additive attention, without atomics: one program adds up all of a gradient, in one order.

    p = exp(z - norm),  dp = upstream . v,  dz = p (dp - upstream . reading),  dv = sum_queries p upstream
    ds = dz / T (1 - (cap(s) / cap)^2), the last factor where there is a cap,  and with g = r (1 - r)
    da_h = 4 w_h sum_keys ds g_h,  dc_h = 4 w_h sum_queries ds g_h,  dw_h = sum ds (1 - 2 r_h)

One call goes over blocks of queries (a, and for w the sums of ds r of each query), one over blocks of keys (c and v).
The side whose blocks are programs is the "outer" one. A thread of a tile has an outer position and all inner ones, so
no sum over these crosses threads. Features, values and upstream gradients lie (channels, length). Sums are added
to channels in memory that no other program touches; a barrier comes before they are read again, as another thread of
the program may have written them. Where there are few blocks, several programs share the inner positions, each with
sums of its own.
"""

import triton
import triton.language as tl

from regard.attention.kernels.triton.scores import (
    additive_tile,
    apart,
    capped_tile,
    channel,
    is_beyond,
    reciprocal,
)
from regard.attention.kernels.triton.tiles import (
    entries_of,
    keys_of,
    load_plane,
    queries_of,
    readable_tile,
    share_of,
    weigh_tile,
)


@triton.jit
def add_channel(sums, h, stored_length, at, number):
    to = sums + h * stored_length + at
    tl.store(to, tl.load(to) + number)


@triton.jit
def value_gradients(
    weights, outer, inner, at_outer, at_inner, outer_stored, inner_stored, width, for_v,
    BY_KEYS: tl.constexpr,
):  # fmt: skip
    """The products of the values and the upstream gradients; by keys, add the gradients of the values."""
    products = tl.zeros((at_inner.shape[0], at_outer.shape[0]), tl.float32)
    for k in range(width):
        coming = channel(inner, k, inner_stored, at_inner)[:, None]
        products += coming * channel(outer, k, outer_stored, at_outer)[None, :]
        if BY_KEYS:
            add_channel(for_v, k, outer_stored, at_outer, tl.sum(weights * coming, 0))
    return products


@triton.jit
def add_channels(gradients, r, h, for_outer, for_w, outer_stored, at_outer, BY_KEYS: tl.constexpr):
    """Add sums over the inner side: of ds r (1 - r), and for w of ds r."""
    add_channel(for_outer, h, outer_stored, at_outer, tl.sum(gradients * (r - r * r), 0))
    if not BY_KEYS:
        add_channel(for_w, h, outer_stored, at_outer, tl.sum(gradients * r, 0))


@triton.jit
def channel_gradients(
    gradients, outer, inner, at_outer, at_inner, outer_stored, inner_stored, hidden,
    for_outer, for_w, direct, BY_KEYS: tl.constexpr,
):  # fmt: skip
    if direct:
        for h in range(hidden):
            inner_channel = channel(inner, h, inner_stored, at_inner)
            outer_channel = channel(outer, h, outer_stored, at_outer)
            add_channels(
                gradients,
                apart(inner_channel, outer_channel),
                h,
                for_outer,
                for_w,
                outer_stored,
                at_outer,
                BY_KEYS,
            )
    else:
        inner += hidden * inner_stored
        outer += hidden * outer_stored
        for h in range(0, hidden, 2):
            t = 1.0 + (
                channel(inner, h, inner_stored, at_inner)[:, None]
                * channel(outer, h, outer_stored, at_outer)[None, :]
            )
            u = 1.0 + (
                channel(inner, h + 1, inner_stored, at_inner)[:, None]
                * channel(outer, h + 1, outer_stored, at_outer)[None, :]
            )
            joint = reciprocal(t * u)
            add_channels(gradients, u * joint, h, for_outer, for_w, outer_stored, at_outer, BY_KEYS)
            add_channels(
                gradients, t * joint, h + 1, for_outer, for_w, outer_stored, at_outer, BY_KEYS
            )


@triton.jit
def backward(
    where, a, c, w, v, spans, bias, mask, asking, stored, a_beyond, c_beyond,
    norms, upstream, means, for_outer, for_w, row_sums, for_v,
    bias_entry, bias_row, bias_column, mask_entry, mask_row, mask_column,
    queries, keys, hidden, width, a_stored, c_stored, entries, factor, cap,
    SPANS: tl.constexpr, DOCUMENTS: tl.constexpr, MASK: tl.constexpr,
    BIAS: tl.constexpr, CAPPED: tl.constexpr,
    OUTER: tl.constexpr, INNER: tl.constexpr, BY_KEYS: tl.constexpr,
):  # fmt: skip
    """Program (block of queries, or of keys, of a batch entry; share of the inner positions)."""
    length, outer_stored, inner_stored = queries, a_stored, c_stored
    if BY_KEYS:
        length, outer_stored, inner_stored = keys, c_stored, a_stored
    blocks = tl.cdiv(length, OUTER)
    entry, block = tl.program_id(0).to(tl.int64) // blocks, tl.program_id(0) % blocks
    at_a, at_c, at_w, at_v, at_spans, at_bias, at_mask, at_asking, at_stored = entries_of(
        entry, where, 9
    )
    a += at_a * 2 * hidden * a_stored
    c += at_c * 2 * hidden * c_stored
    a_beyond += at_a * (a_stored // 16)
    c_beyond += at_c * (c_stored // 16)
    v += at_v * width * c_stored
    w += at_w * hidden
    spans += at_spans * 2 * queries
    bias += at_bias * bias_entry
    mask += at_mask * mask_entry
    asking += at_asking * queries
    stored += at_stored * keys
    norms += entry * 2 * queries
    means += entry * queries
    upstream += entry * width * a_stored
    place = entry + tl.program_id(1) * entries  # of the sums of this share
    for_outer += place * hidden * outer_stored
    outer, inner, outer_values, inner_values = a, c, upstream, v
    outer_beyond, inner_beyond = a_beyond, c_beyond
    at_outer = block * OUTER + tl.arange(0, OUTER)
    if BY_KEYS:
        outer, inner, outer_values, inner_values = c, a, v, upstream
        outer_beyond, inner_beyond = c_beyond, a_beyond
        for_v += place * width * outer_stored
        begin, end = queries_of(spans, block * OUTER, (block + 1) * OUTER, queries, SPANS)
    else:
        for_w += place * hidden * outer_stored
        begin, end = keys_of(spans, at_outer, queries, keys, SPANS)
    begin, end = share_of(begin, end, tl.program_id(1), tl.num_programs(1), INNER)
    direct = is_beyond(outer_beyond, block * OUTER, outer_stored, OUTER)
    sums = tl.zeros((OUTER,), tl.float32)
    for position in range(begin, end, INNER):
        at_inner = position + tl.arange(0, INNER)
        rows, columns = at_outer[None, :], at_inner[:, None]
        if BY_KEYS:
            rows, columns = at_inner[:, None], at_outer[None, :]
        far = direct | is_beyond(inner_beyond, position, inner_stored, INNER)
        scores = additive_tile(
            outer, inner, w, at_outer, at_inner, outer_stored, inner_stored, hidden, far
        )
        slope = factor
        if CAPPED:
            scores = capped_tile(scores, w, hidden, cap)
            slope = factor * (1.0 - (scores / cap) * (scores / cap))
        readable = readable_tile(
            rows, columns, spans, asking, stored, mask, mask_row, mask_column, queries, keys,
            SPANS, DOCUMENTS, MASK,
        )  # fmt: skip
        if BIAS:
            scores += load_plane(bias, rows, columns, bias_row, bias_column, readable)
        scores = tl.where(readable, scores, float("-inf"))
        weights = weigh_tile(scores, norms, rows, queries, factor)
        tl.debug_barrier()
        gradients = value_gradients(
            weights, outer_values, inner_values, at_outer, at_inner, outer_stored, inner_stored,
            width, for_v, BY_KEYS,
        )  # fmt: skip
        mean = tl.load(means + rows, mask=rows < queries, other=0.0)
        gradients = weights * (gradients - mean) * slope
        sums += tl.sum(gradients, 0)
        channel_gradients(
            gradients, outer, inner, at_outer, at_inner, outer_stored, inner_stored, hidden,
            for_outer, for_w, far, BY_KEYS,
        )  # fmt: skip
    if not BY_KEYS:
        tl.store(row_sums + place * queries + at_outer, sums, mask=at_outer < queries)
