"""Which keys a block of queries reads, and which queries read a block of keys: worked out once for a mask.

A block has four numbers: from where on some positions are read, between which two all are, and before where some are.
The last tiles of a block's run and its first ones need the mask; those between need none.
"""

import triton
import triton.language as tl

CHUNK = tl.constexpr(256)  # queries whose spans are compared at a time


@triton.jit
def store_run(table, begin, full_begin, full_end, end):
    tl.store(table, begin)
    tl.store(table + 1, full_begin)
    tl.store(table + 2, full_end)
    tl.store(table + 3, end)


@triton.jit
def runs_of_queries(spans, table, queries, keys, BLOCK: tl.constexpr):
    """Program (block of queries of an entry of the mask): the keys that some of them read, and all of them."""
    blocks = tl.cdiv(queries, BLOCK)
    entry, block = tl.program_id(0).to(tl.int64) // blocks, tl.program_id(0) % blocks
    spans += entry * 2 * queries
    rows = block * BLOCK + tl.arange(0, BLOCK)
    low = tl.load(spans + rows, mask=rows < queries, other=0)
    high = tl.load(spans + queries + rows, mask=rows < queries, other=keys)
    reads = (low < high) & (rows < queries)
    begin = tl.min(tl.where(reads, low, keys), 0)
    end = tl.max(tl.where(reads, high, 0), 0)
    table += (entry * blocks + block) * 4
    store_run(table, begin, tl.max(low, 0), tl.min(high, 0), end)


@triton.jit
def runs_of_keys(spans, table, queries, keys, BLOCK: tl.constexpr):
    """Program (block of keys of an entry of the mask): the queries that read some of them, and all of them."""
    blocks = tl.cdiv(keys, BLOCK)
    entry, block = tl.program_id(0).to(tl.int64) // blocks, tl.program_id(0) % blocks
    spans += entry * 2 * queries
    key_begin = block * BLOCK
    key_end = tl.minimum(key_begin + BLOCK, keys)
    begins = tl.full((CHUNK,), 1 << 30, tl.int32)
    full_begins = tl.full((CHUNK,), 1 << 30, tl.int32)
    full_ends = tl.zeros((CHUNK,), tl.int32)
    ends = tl.zeros((CHUNK,), tl.int32)
    count = tl.zeros((CHUNK,), tl.int32)
    for position in range(0, queries, CHUNK):
        rows = position + tl.arange(0, CHUNK)
        low = tl.load(spans + rows, mask=rows < queries, other=0)
        high = tl.load(spans + queries + rows, mask=rows < queries, other=0)
        overlaps = (low < key_end) & (high > key_begin) & (low < high)
        covers = (low <= key_begin) & (high >= key_end)
        begins = tl.minimum(begins, tl.where(overlaps, rows, 1 << 30))
        ends = tl.maximum(ends, tl.where(overlaps, rows + 1, 0))
        full_begins = tl.minimum(full_begins, tl.where(covers, rows, 1 << 30))
        full_ends = tl.maximum(full_ends, tl.where(covers, rows + 1, 0))
        count += covers.to(tl.int32)
    full_begin, full_end = tl.min(full_begins, 0), tl.max(full_ends, 0)
    if full_end - full_begin != tl.sum(count, 0):  # others lie between
        full_end = full_begin
    table += (entry * blocks + block) * 4
    store_run(table, tl.min(begins, 0), full_begin, full_end, tl.max(ends, 0))


@triton.jit
def tiles_of(table, INNER: tl.constexpr, MASKED: tl.constexpr):
    """The tiles of a block: where the first one begins, how many of those that need the mask are before the full ones,
    how many need it in all, and where the full ones begin and end. With MASKED all need it.
    """
    begin = tl.load(table) // INNER * INNER
    full_begin = tl.cdiv(tl.load(table + 1), INNER) * INNER
    full_end = tl.load(table + 2) // INNER * INNER
    end = tl.load(table + 3)
    none = full_end <= full_begin
    if MASKED:
        none = True
    full_begin = tl.where(none, begin, full_begin)
    full_end = tl.where(none, begin, full_end)
    front = (full_begin - begin) // INNER
    masked = front + tl.cdiv(tl.maximum(end - full_end, 0), INNER)
    return begin, front, masked, full_begin, full_end
