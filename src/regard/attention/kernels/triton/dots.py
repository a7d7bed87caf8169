"""The gradients of attention by dot products, a block of queries or of keys at a time, as of additive attention.

    dq = sum_keys ds k,  dk = sum_queries ds q

Source: Dao 2023, arXiv 2307.08691, algorithm 2, with queries and keys in two calls, so that there are no atomics.
"""

import triton
import triton.language as tl

from regard.attention.kernels.triton.tiles import (
    entries_of,
    keys_of,
    load_rows,
    queries_of,
    readable_tile,
    store_rows,
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
def dot_gradients(
    where, query, key, v, spans, asking, stored, norms, upstream, means, for_outer, for_v,
    queries, keys, depth, width, factor,
    SPANS: tl.constexpr, DOCUMENTS: tl.constexpr,
    OUTER: tl.constexpr, INNER: tl.constexpr, WIDE: tl.constexpr, DEEP: tl.constexpr,
    BY_KEYS: tl.constexpr,
):  # fmt: skip
    """Program (block of queries, or of keys, of a batch entry)."""
    length, inner_length = queries, keys
    if BY_KEYS:
        length, inner_length = keys, queries
    blocks = tl.cdiv(length, OUTER)
    entry, block = tl.program_id(0).to(tl.int64) // blocks, tl.program_id(0) % blocks
    at_a, at_c, _, at_v, at_spans, _, _, at_asking, at_stored = entries_of(entry, where, 9)
    query += at_a * queries * depth
    key += at_c * keys * depth
    v += at_v * keys * width
    spans += at_spans * 2 * queries
    asking += at_asking * queries
    stored += at_stored * keys
    norms += entry * 2 * queries
    means += entry * queries
    upstream += entry * queries * width
    outer, inner, outer_values, inner_values = query, key, upstream, v
    at_outer = block * OUTER + tl.arange(0, OUTER)
    if BY_KEYS:
        outer, inner, outer_values, inner_values = key, query, v, upstream
        begin, end = queries_of(spans, block * OUTER, (block + 1) * OUTER, queries, SPANS)
    else:
        begin, end = keys_of(spans, at_outer, queries, keys, SPANS)
    deep, wide = tl.arange(0, DEEP), tl.arange(0, WIDE)
    outer_vectors = load_rows(outer, at_outer, length, deep, depth)
    outer_value_rows = load_rows(outer_values, at_outer, length, wide, width)
    of_outer = tl.zeros((OUTER, DEEP), tl.float32)
    of_values = tl.zeros((OUTER, WIDE), tl.float32)
    for position in range(begin // INNER * INNER, end, INNER):
        at_inner = position + tl.arange(0, INNER)
        rows, columns = at_outer[:, None], at_inner[None, :]
        if BY_KEYS:
            rows, columns = at_inner[None, :], at_outer[:, None]
        inner_vectors = load_rows(inner, at_inner, inner_length, deep, depth)
        coming = load_rows(inner_values, at_inner, inner_length, wide, width)
        scores = tl.dot(outer_vectors, tl.trans(inner_vectors), input_precision="tf32x3")
        readable = readable_tile(
            rows, columns, spans, asking, stored, spans, 0, 0, queries, keys,
            SPANS, DOCUMENTS, False,
        )  # fmt: skip
        scores = tl.where(readable, scores, float("-inf"))
        weights = weigh_tile(scores, norms, rows, queries, factor)
        products = tl.dot(outer_value_rows, tl.trans(coming), input_precision="tf32x3")
        if BY_KEYS:
            of_values += tl.dot(weights.to(coming.dtype), coming, input_precision="tf32x3")
        mean = tl.load(means + rows, mask=rows < queries, other=0.0)
        gradients = weights * (products - mean) * factor
        of_outer += tl.dot(
            gradients.to(inner_vectors.dtype), inner_vectors, input_precision="tf32x3"
        )
    for_outer += entry * length * depth
    store_rows(for_outer, at_outer, length, deep, depth, of_outer.to(for_outer.dtype.element_ty))
    if BY_KEYS:
        for_v += entry * keys * width
        store_rows(for_v, at_outer, keys, wide, width, of_values.to(for_v.dtype.element_ty))
