"""Attention by dot products under a mask, a block of queries or of keys at a time.

    p = e^(factor q . k - peak) / total,  reading = sum_keys p v
    dp = upstream . v,  ds = factor p (dp - upstream . reading)
    dq = sum_keys ds k,  dk = sum_queries ds q,  dv = sum_queries p upstream

Tiles that are read in whole are computed first, without the mask. Queries and keys have their gradients from programs
of their own, so that there are no atomics.

Source: Milakov and Gimelshein 2018, arXiv 1805.02867; Dao 2023, arXiv 2307.08691, algorithms 1 and 2.
"""

import triton
import triton.language as tl

from regard.attention.kernels.triton.runs import tiles_of
from regard.attention.kernels.triton.tiles import LOG2E

SIDES = tl.constexpr(
    6
)  # query, key, value: where their numbers begin; spans, asking and stored: their entry


@triton.jit
def place_of(program, length, entries, OUTER: tl.constexpr):
    """The batch entry and the block of a program. The last blocks begin first: a triangle reads the most there."""
    blocks = tl.cdiv(length, OUTER)
    return (program % entries).to(tl.int64), blocks - 1 - program // entries


@triton.jit
def start_of(where, entry, side, ALIGNED: tl.constexpr):
    """Where the numbers of a side begin. Aligned numbers are read several at a time."""
    start = tl.load(where + entry * SIDES + side)
    if ALIGNED:
        start = tl.multiple_of(start, 16)
    return start


@triton.jit
def rows_of(
    numbers, rows, stride, length, WIDTH: tl.constexpr, WIDE: tl.constexpr, WITHIN: tl.constexpr
):
    """Rows of numbers, zeros past the width, and past the length unless all rows are WITHIN it."""
    columns = tl.arange(0, WIDE)
    at = numbers + rows[:, None] * stride + columns[None, :]
    if WITHIN and WIDTH == WIDE:
        return tl.load(at)
    if WITHIN:
        return tl.load(at, mask=(columns < WIDTH)[None, :], other=0.0)
    if WIDTH == WIDE:
        return tl.load(at, mask=(rows < length)[:, None], other=0.0)
    return tl.load(at, mask=(rows < length)[:, None] & (columns < WIDTH)[None, :], other=0.0)


@triton.jit
def store_rows_of(numbers, rows, length, tile, WIDTH: tl.constexpr, WIDE: tl.constexpr):
    columns = tl.arange(0, WIDE)
    at = numbers + rows[:, None] * WIDTH + columns[None, :]
    inside = (rows < length)[:, None] & (columns < WIDTH)[None, :]
    tl.store(at, tile.to(numbers.dtype.element_ty), mask=inside)


@triton.jit
def add_values(
    state, block, key, value, low, high, ours, stored, position, keys, key_row, value_row, scale,
    DOCUMENTS: tl.constexpr, DEPTH: tl.constexpr, WIDTH: tl.constexpr, INNER: tl.constexpr,
    DEEP: tl.constexpr, WIDE: tl.constexpr, FULL: tl.constexpr,
):  # fmt: skip
    """The peak, total and sum of values of a block of queries with the keys of one more tile."""
    peak, total, blend = state
    columns = position + tl.arange(0, INNER)
    vectors = rows_of(key, columns, key_row, keys, DEPTH, DEEP, FULL)
    scores = tl.dot(block, tl.trans(vectors), input_precision="tf32x3")
    if not FULL:
        readable = (columns[None, :] >= low[:, None]) & (columns[None, :] < high[:, None])
        if DOCUMENTS:
            theirs = tl.load(stored + columns, mask=columns < keys, other=0)
            readable = readable & (ours[:, None] == theirs[None, :])
        scores = tl.where(readable, scores, float("-inf"))
    higher = tl.maximum(peak, tl.max(scores, 1) * scale)
    ground = tl.where(higher == float("-inf"), 0.0, higher)
    weights = tl.exp2(scores * scale - ground[:, None])
    fade = tl.exp2(peak - ground)
    numbers = rows_of(value, columns, value_row, keys, WIDTH, WIDE, FULL)
    blend = blend * fade[:, None]
    blend = tl.dot(weights.to(numbers.dtype), numbers, blend, input_precision="tf32x3")
    return higher, total * fade + tl.sum(weights, 1), blend


@triton.jit
def read(
    where, query, key, value, spans, asking, stored, table, reading, norms, entries, queries, keys,
    query_row, key_row, value_row, factor,
    DOCUMENTS: tl.constexpr, ALIGNED: tl.constexpr, DEPTH: tl.constexpr, WIDTH: tl.constexpr,
    OUTER: tl.constexpr, INNER: tl.constexpr, DEEP: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Program (block of queries of a batch entry): the reading, and of each query the peak and 1 / total."""
    entry, number = place_of(tl.program_id(0), queries, entries, OUTER)
    query += start_of(where, entry, 0, ALIGNED)
    key += start_of(where, entry, 1, ALIGNED)
    value += start_of(where, entry, 2, ALIGNED)
    rule = start_of(where, entry, 3, False)
    spans += rule * 2 * queries
    table += (rule * tl.cdiv(queries, OUTER) + number) * 4
    stored += start_of(where, entry, 5, False) * keys
    rows = number * OUTER + tl.arange(0, OUTER)
    inside = rows < queries
    low = tl.load(spans + rows, mask=inside, other=0)
    high = tl.load(spans + queries + rows, mask=inside, other=0)
    ours = low
    if DOCUMENTS:
        asking += start_of(where, entry, 4, False) * queries
        ours = tl.load(asking + rows, mask=inside, other=0)
    block = rows_of(query, rows, query_row, queries, DEPTH, DEEP, False)
    scale = factor * LOG2E
    peak = tl.full((OUTER,), float("-inf"), tl.float32)
    total = tl.zeros((OUTER,), tl.float32)
    blend = tl.zeros((OUTER, WIDE), tl.float32)
    begin, front, masked, full_begin, full_end = tiles_of(table, INNER, DOCUMENTS)
    for position in range(full_begin, full_end, INNER):
        peak, total, blend = add_values(
            (peak, total, blend), block, key, value, low, high, ours, stored, position, keys,
            key_row, value_row, scale, DOCUMENTS, DEPTH, WIDTH, INNER, DEEP, WIDE, True,
        )  # fmt: skip
    for tile in range(masked):
        position = tl.where(tile < front, begin, full_end - front * INNER) + tile * INNER
        peak, total, blend = add_values(
            (peak, total, blend), block, key, value, low, high, ours, stored, position, keys,
            key_row, value_row, scale, DOCUMENTS, DEPTH, WIDTH, INNER, DEEP, WIDE, False,
        )  # fmt: skip
    inverse = tl.where(total > 0.0, 1.0 / tl.where(total > 0.0, total, 1.0), 0.0)
    reading += entry * queries * WIDTH
    store_rows_of(reading, rows, queries, blend * inverse[:, None], WIDTH, WIDE)
    norms += entry * 2 * queries
    tl.store(norms + rows, tl.where(total > 0.0, peak, 0.0), mask=inside)
    tl.store(norms + queries + rows, inverse, mask=inside)


@triton.jit
def means_of(
    upstream, reading, means, length, WIDTH: tl.constexpr, OUTER: tl.constexpr, WIDE: tl.constexpr
):
    """The products of the upstream gradients and the readings, of each query."""
    rows = tl.program_id(0).to(tl.int64) * OUTER + tl.arange(0, OUTER)
    coming = rows_of(upstream, rows, WIDTH, length, WIDTH, WIDE, False).to(tl.float32)
    readings = rows_of(reading, rows, WIDTH, length, WIDTH, WIDE, False).to(tl.float32)
    tl.store(means + rows, tl.sum(coming * readings, 1), mask=rows < length)


@triton.jit
def add_gradients(
    of_outer, of_values, outer, outer_values, inner, inner_values, spans, low, high, ours, theirs,
    norms, peak, inverse, means, mean, at_outer, position, queries, inner_length, inner_row,
    inner_values_row, scale,
    DOCUMENTS: tl.constexpr, DEPTH: tl.constexpr, WIDTH: tl.constexpr, INNER: tl.constexpr,
    DEEP: tl.constexpr, WIDE: tl.constexpr, BY_KEYS: tl.constexpr, FULL: tl.constexpr,
):  # fmt: skip
    """The sums of a block, without the factor, with one more tile of the other side."""
    at_inner = position + tl.arange(0, INNER)
    vectors = rows_of(inner, at_inner, inner_row, inner_length, DEPTH, DEEP, FULL)
    coming = rows_of(inner_values, at_inner, inner_values_row, inner_length, WIDTH, WIDE, FULL)
    if BY_KEYS:
        inside = at_inner < queries
        peak = tl.load(norms + at_inner, mask=inside, other=0.0)[None, :]
        inverse = tl.load(norms + queries + at_inner, mask=inside, other=0.0)[None, :]
        mean = tl.load(means + at_inner, mask=inside, other=0.0)[None, :]
    scores = tl.dot(outer, tl.trans(vectors), input_precision="tf32x3")
    if not FULL:
        columns = at_inner[None, :]
        if BY_KEYS:
            columns = at_outer[:, None]
            low = tl.load(spans + at_inner, mask=at_inner < queries, other=0)[None, :]
            high = tl.load(spans + queries + at_inner, mask=at_inner < queries, other=0)[None, :]
        readable = (columns >= low) & (columns < high)
        if DOCUMENTS:
            documents = tl.load(theirs + at_inner, mask=at_inner < inner_length, other=0)
            readable = readable & (ours == documents[None, :])
        scores = tl.where(readable, scores, float("-inf"))
    weights = tl.exp2(scores * scale - peak) * inverse
    products = tl.dot(outer_values, tl.trans(coming), input_precision="tf32x3")
    if BY_KEYS:
        of_values = tl.dot(weights.to(coming.dtype), coming, of_values, input_precision="tf32x3")
    gradients = weights * (products - mean)
    of_outer = tl.dot(gradients.to(vectors.dtype), vectors, of_outer, input_precision="tf32x3")
    return of_outer, of_values


@triton.jit
def block_gradients(
    program, where, query, key, value, spans, asking, stored, table, norms, upstream, means,
    for_outer, for_value, entries, queries, keys, query_row, key_row, value_row, factor,
    DOCUMENTS: tl.constexpr, ALIGNED: tl.constexpr, DEPTH: tl.constexpr, WIDTH: tl.constexpr,
    OUTER: tl.constexpr, INNER: tl.constexpr, DEEP: tl.constexpr, WIDE: tl.constexpr,
    BY_KEYS: tl.constexpr,
):  # fmt: skip
    """The gradients of a block of queries, or of keys and their values."""
    length, inner_length = queries, keys
    if BY_KEYS:
        length, inner_length = keys, queries
    entry, number = place_of(program, length, entries, OUTER)
    if BY_KEYS:  # the first keys are read the most
        number = tl.cdiv(length, OUTER) - 1 - number
    query += start_of(where, entry, 0, ALIGNED)
    key += start_of(where, entry, 1, ALIGNED)
    value += start_of(where, entry, 2, ALIGNED)
    rule = start_of(where, entry, 3, False)
    spans += rule * 2 * queries
    table += (rule * tl.cdiv(length, OUTER) + number) * 4
    asking += start_of(where, entry, 4, False) * queries
    stored += start_of(where, entry, 5, False) * keys
    norms += entry * 2 * queries
    means += entry * queries
    upstream += entry * queries * WIDTH
    at_outer = number * OUTER + tl.arange(0, OUTER)
    inside = at_outer < length
    outer, inner, outer_row, inner_row = query, key, query_row, key_row
    values, inner_values, values_row, inner_values_row = upstream, value, WIDTH, value_row
    ours, theirs = asking, stored
    if BY_KEYS:
        outer, inner, outer_row, inner_row = key, query, key_row, query_row
        values, inner_values, values_row, inner_values_row = value, upstream, value_row, WIDTH
        ours, theirs = stored, asking
    outer_rows = rows_of(outer, at_outer, outer_row, length, DEPTH, DEEP, False)
    outer_values = rows_of(values, at_outer, values_row, length, WIDTH, WIDE, False)
    low, high, peak, inverse, mean = at_outer, at_outer, 0.0, 0.0, 0.0
    if not BY_KEYS:
        low = tl.load(spans + at_outer, mask=inside, other=0)[:, None]
        high = tl.load(spans + queries + at_outer, mask=inside, other=0)[:, None]
        peak = tl.load(norms + at_outer, mask=inside, other=0.0)[:, None]
        inverse = tl.load(norms + queries + at_outer, mask=inside, other=0.0)[:, None]
        mean = tl.load(means + at_outer, mask=inside, other=0.0)[:, None]
    document = at_outer[:, None]
    if DOCUMENTS:
        document = tl.load(ours + at_outer, mask=inside, other=0)[:, None]
    of_outer = tl.zeros((OUTER, DEEP), tl.float32)
    of_values = tl.zeros((OUTER, WIDE), tl.float32)
    scale = factor * LOG2E
    begin, front, masked, full_begin, full_end = tiles_of(table, INNER, DOCUMENTS)
    for position in range(full_begin, full_end, INNER):
        of_outer, of_values = add_gradients(
            of_outer, of_values, outer_rows, outer_values, inner, inner_values, spans, low, high,
            document, theirs, norms, peak, inverse, means, mean, at_outer, position, queries,
            inner_length, inner_row, inner_values_row, scale,
            DOCUMENTS, DEPTH, WIDTH, INNER, DEEP, WIDE, BY_KEYS, True,
        )  # fmt: skip
    for tile in range(masked):
        position = tl.where(tile < front, begin, full_end - front * INNER) + tile * INNER
        of_outer, of_values = add_gradients(
            of_outer, of_values, outer_rows, outer_values, inner, inner_values, spans, low, high,
            document, theirs, norms, peak, inverse, means, mean, at_outer, position, queries,
            inner_length, inner_row, inner_values_row, scale,
            DOCUMENTS, DEPTH, WIDTH, INNER, DEEP, WIDE, BY_KEYS, False,
        )  # fmt: skip
    for_outer += entry * length * DEPTH
    store_rows_of(for_outer, at_outer, length, of_outer * factor, DEPTH, DEEP)
    if BY_KEYS:
        for_value += entry * length * WIDTH
        store_rows_of(for_value, at_outer, length, of_values, WIDTH, WIDE)


@triton.jit
def gradients(
    where, query, key, value, spans, asking, stored, by_queries, by_keys, norms, upstream, means,
    for_query, for_key, for_value, entries, queries, keys, query_row, key_row, value_row, factor,
    DOCUMENTS: tl.constexpr, ALIGNED: tl.constexpr, DEPTH: tl.constexpr, WIDTH: tl.constexpr,
    OUTER: tl.constexpr, INNER: tl.constexpr, KEY_OUTER: tl.constexpr, KEY_INNER: tl.constexpr,
    DEEP: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Programs (block of keys of a batch entry), then (block of queries of one)."""
    program = tl.program_id(0)
    key_programs = tl.cdiv(keys, KEY_OUTER) * entries
    if program < key_programs:
        block_gradients(
            program, where, query, key, value, spans, asking, stored, by_keys, norms, upstream,
            means, for_key, for_value, entries, queries, keys, query_row, key_row, value_row, factor,
            DOCUMENTS, ALIGNED, DEPTH, WIDTH, KEY_OUTER, KEY_INNER, DEEP, WIDE, True,
        )  # fmt: skip
    else:
        block_gradients(
            program - key_programs, where, query, key, value, spans, asking, stored, by_queries,
            norms, upstream, means, for_query, for_value, entries, queries, keys, query_row,
            key_row, value_row, factor,
            DOCUMENTS, ALIGNED, DEPTH, WIDTH, OUTER, INNER, DEEP, WIDE, False,
        )  # fmt: skip
