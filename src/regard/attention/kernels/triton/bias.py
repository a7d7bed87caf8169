"""The gradient of the bias: of each of its numbers, the sum over all pairs that it is added to.

    dbias_ij = p_ij (upstream_i . v_j - upstream_i . reading_i) / T

A bias may stand for many queries, keys or batch entries. One program adds up all that a tile of it
stands for, in one order, so that the gradient takes the bias's number memory and no atomics.
"""

import triton
import triton.language as tl

from regard.attention.kernels.triton.scores import additive_tile, capped_tile, is_beyond
from regard.attention.kernels.triton.tiles import (
    entries_of,
    keys_of,
    load_plane,
    load_rows,
    readable_tile,
    weigh_tile,
)


@triton.jit
def weight_gradients(
    outer, inner, at_outer, at_inner, outer_length, inner_length, width, WIDE: tl.constexpr
):
    """The products of the values and the upstream gradients, (outer, inner)."""
    total = tl.zeros((at_outer.shape[0], at_inner.shape[0]), tl.float32)
    for start in range(0, width, WIDE):
        wide = start + tl.arange(0, WIDE)
        outer_rows = load_rows(outer, at_outer, outer_length, wide, width)
        inner_rows = load_rows(inner, at_inner, inner_length, wide, width)
        total += tl.dot(outer_rows, tl.trans(inner_rows), input_precision="tf32x3")
    return total


@triton.jit
def bias_gradients(
    where, a, c, w, v, spans, bias, mask, asking, stored, a_beyond, c_beyond,
    norms, upstream, means, order, starts, gradients,
    bias_entry, bias_row, bias_column, mask_entry, mask_row, mask_column,
    queries, keys, hidden, width, a_stored, c_stored, entries, factor, cap,
    SPANS: tl.constexpr, DOCUMENTS: tl.constexpr, MASK: tl.constexpr,
    BIAS: tl.constexpr, CAPPED: tl.constexpr,
    OUTER: tl.constexpr, INNER: tl.constexpr, WIDE: tl.constexpr,
    ONE_ROW: tl.constexpr, ONE_COLUMN: tl.constexpr,
):  # fmt: skip
    """Program (block of the bias's rows, of its columns, entry of the bias), for additive scores.

    order: batch entries, those that share a bias together; starts: where each bias's begin.
    """
    number = tl.program_id(0).to(tl.int64)
    total = tl.zeros((OUTER, INNER), tl.float32)
    row, column = tl.program_id(1) * OUTER, tl.program_id(2) * INNER
    row_end, column_end = row + OUTER, column + INNER
    if ONE_ROW:
        row_end = queries
    if ONE_COLUMN:
        column_end = keys
    bias += number * bias_entry
    for place in range(tl.load(starts + number), tl.load(starts + number + 1)):
        entry = tl.load(order + place)
        at_a, at_c, at_w, at_v, at_spans, _, at_mask, at_asking, at_stored = entries_of(
            entry, where, 9
        )
        outer, inner = a + at_a * 2 * hidden * a_stored, c + at_c * 2 * hidden * c_stored
        spans_here = spans + at_spans * 2 * queries
        for first_row in range(row, row_end, OUTER):
            at_queries = first_row + tl.arange(0, OUTER)
            rows = at_queries[:, None]
            begin, end = keys_of(spans_here, at_queries, queries, keys, SPANS)
            for first_column in range(column, column_end, INNER):
                if (end > first_column) & (begin < first_column + INNER):
                    at_keys = first_column + tl.arange(0, INNER)
                    columns = at_keys[None, :]
                    far = is_beyond(a_beyond + at_a * (a_stored // 16), first_row, a_stored, OUTER)
                    far = far | is_beyond(
                        c_beyond + at_c * (c_stored // 16), first_column, c_stored, INNER
                    )
                    tile = additive_tile(
                        outer, inner, w + at_w * hidden, at_queries, at_keys, a_stored, c_stored,
                        hidden, far,
                    )  # fmt: skip
                    scores = tl.trans(tile)
                    if CAPPED:
                        scores = capped_tile(scores, w + at_w * hidden, hidden, cap)
                    readable = readable_tile(
                        rows, columns, spans_here, asking + at_asking * queries,
                        stored + at_stored * keys, mask + at_mask * mask_entry, mask_row,
                        mask_column, queries, keys, SPANS, DOCUMENTS, MASK,
                    )  # fmt: skip
                    scores += load_plane(bias, rows, columns, bias_row, bias_column, readable)
                    scores = tl.where(readable, scores, float("-inf"))
                    weights = weigh_tile(scores, norms + entry * 2 * queries, rows, queries, factor)
                    products = weight_gradients(
                        upstream + entry * queries * width, v + at_v * keys * width, at_queries,
                        at_keys, queries, keys, width, WIDE,
                    )  # fmt: skip
                    mean = tl.load(means + entry * queries + rows, mask=rows < queries, other=0.0)
                    total += weights * (products - mean) * factor
    at_queries, at_keys = row + tl.arange(0, OUTER), column + tl.arange(0, INNER)
    gradients += number * bias_entry
    if ONE_ROW and ONE_COLUMN:
        tl.store(gradients, tl.sum(tl.sum(total, 1), 0))
    elif ONE_ROW:
        tl.store(gradients + at_keys, tl.sum(total, 0), mask=at_keys < keys)
    elif ONE_COLUMN:
        tl.store(gradients + at_queries, tl.sum(total, 1), mask=at_queries < queries)
    else:
        inside = (at_queries < queries)[:, None] & (at_keys < keys)[None, :]
        place = at_queries[:, None].to(tl.int64) * keys + at_keys[None, :]
        tl.store(gradients + place, total, mask=inside)
