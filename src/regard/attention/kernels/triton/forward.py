"""The reading of a block of queries, with an online softmax over blocks of keys.

Where there are few blocks, several programs share the keys, each with a reading and sums of its own.

Source: Milakov and Gimelshein 2018, arXiv 1805.02867; Dao et al. 2022, arXiv 2205.14135, algorithm 1.
"""

import triton
import triton.language as tl

from regard.attention.kernels.triton.scores import additive_tile, capped_tile, is_beyond
from regard.attention.kernels.triton.tiles import (
    LOG2E,
    entries_of,
    keys_of,
    load_plane,
    load_rows,
    readable_tile,
    share_of,
    store_rows,
)


@triton.jit
def forward(
    where, a, c, w, v, spans, bias, mask, asking, stored, a_beyond, c_beyond,
    reading, norms,
    bias_entry, bias_row, bias_column, mask_entry, mask_row, mask_column,
    queries, keys, hidden, width, a_stored, c_stored, entries, factor, cap,
    SPANS: tl.constexpr, DOCUMENTS: tl.constexpr, MASK: tl.constexpr,
    BIAS: tl.constexpr, CAPPED: tl.constexpr,
    OUTER: tl.constexpr, INNER: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Program (query block of a batch entry, stretch of the value's width, share of the keys)."""
    blocks = tl.cdiv(queries, OUTER)
    entry, block = tl.program_id(0).to(tl.int64) // blocks, tl.program_id(0) % blocks
    at_a, at_c, at_w, at_v, at_spans, at_bias, at_mask, at_asking, at_stored = entries_of(
        entry, where, 9
    )
    at_queries = block * OUTER + tl.arange(0, OUTER)
    rows = at_queries[:, None]
    wide = tl.program_id(1) * WIDE + tl.arange(0, WIDE)
    v += at_v * keys * width
    w += at_w * hidden
    spans += at_spans * 2 * queries
    bias += at_bias * bias_entry
    mask += at_mask * mask_entry
    asking += at_asking * queries
    stored += at_stored * keys
    a += at_a * 2 * hidden * a_stored
    c += at_c * 2 * hidden * c_stored
    a_beyond += at_a * (a_stored // 16)
    c_beyond += at_c * (c_stored // 16)
    direct = is_beyond(a_beyond, block * OUTER, a_stored, OUTER)
    peak = tl.full((OUTER, 1), float("-inf"), tl.float32)
    total = tl.zeros((OUTER, 1), tl.float32)
    blend = tl.zeros((OUTER, WIDE), tl.float32)
    begin, end = keys_of(spans, at_queries, queries, keys, SPANS)
    begin, end = share_of(begin, end, tl.program_id(2), tl.num_programs(2), INNER)
    for position in range(begin, end, INNER):
        at_keys = position + tl.arange(0, INNER)
        columns = at_keys[None, :]
        apart = direct | is_beyond(c_beyond, position, c_stored, INNER)
        scores = tl.trans(
            additive_tile(a, c, w, at_queries, at_keys, a_stored, c_stored, hidden, apart)
        )
        if CAPPED:
            scores = capped_tile(scores, w, hidden, cap)
        readable = readable_tile(
            rows, columns, spans, asking, stored, mask, mask_row, mask_column, queries, keys,
            SPANS, DOCUMENTS, MASK,
        )  # fmt: skip
        if BIAS:
            scores += load_plane(bias, rows, columns, bias_row, bias_column, readable)
        scores = tl.where(readable, scores, float("-inf"))
        higher = tl.maximum(peak, tl.max(scores, 1, keep_dims=True))
        ground = tl.where(higher == float("-inf"), 0.0, higher)
        weights = tl.exp2((scores - ground) * (factor * LOG2E))
        fade = tl.exp2((peak - ground) * (factor * LOG2E))
        total = total * fade + tl.sum(weights, 1, keep_dims=True)
        values = load_rows(v, at_keys, keys, wide, width)
        blend = blend * fade + tl.dot(weights, values, input_precision="tf32x3")
        peak = higher
    blend = blend / tl.where(total > 0.0, total, 1.0)
    place = entry + tl.program_id(2) * entries
    reading += place * queries * width
    store_rows(reading, at_queries, queries, wide, width, blend)
    if tl.program_id(1) == 0:
        norms += place * 2 * queries
        tl.store(norms + rows, peak, mask=rows < queries)
        tl.store(norms + queries + rows, total, mask=rows < queries)


@triton.jit
def join(
    readings, norms, reading, joint_norms, queries, width, entries, shares, factor,
    OUTER: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Program (block of queries of all entries, stretch of the values): the reading of the keys of all shares."""
    count = entries * queries
    rows = tl.program_id(0) * OUTER + tl.arange(0, OUTER)
    columns = tl.program_id(1) * WIDE + tl.arange(0, WIDE)
    inside = rows < count
    at = rows // queries * 2 * queries + rows % queries
    peak = tl.full((OUTER,), float("-inf"), tl.float32)
    for share in range(shares):
        share_peak = tl.load(norms + share * 2 * count + at, mask=inside, other=float("-inf"))
        peak = tl.maximum(peak, share_peak)
    ground = tl.where(peak == float("-inf"), 0.0, peak)
    total = tl.zeros((OUTER,), tl.float32)
    blend = tl.zeros((OUTER, WIDE), tl.float32)
    for share in range(shares):
        place = norms + share * 2 * count + at
        share_peak = tl.load(place, mask=inside, other=float("-inf"))
        share_total = tl.load(place + queries, mask=inside, other=0.0)
        share_total *= tl.exp2((share_peak - ground) * (factor * LOG2E))
        total += share_total
        numbers = load_rows(readings + share * count * width, rows, count, columns, width)
        blend += share_total[:, None] * numbers
    blend = blend / tl.where(total > 0.0, total, 1.0)[:, None]
    store_rows(reading, rows, count, columns, width, blend)
    if tl.program_id(1) == 0:
        tl.store(joint_norms + at, peak, mask=inside)
        tl.store(joint_norms + queries + at, total, mask=inside)
