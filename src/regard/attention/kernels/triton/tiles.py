"""What all kernels read for a tile of queries x keys: which keys may be read, and rows of numbers.

`rows` are positions of queries and `columns` of keys, one of them along the first axis of the tile and the other
along its second: (rows, 1) and (1, columns), or (1, rows) and (columns, 1).
"""

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
CHUNK = tl.constexpr(256)  # queries whose spans are compared at a time


@triton.jit
def entries_of(entry, where, SIDES: tl.constexpr):
    """Where the entry of each side begins: the columns of `where` are the sides, in their order."""
    at = where + entry * SIDES
    return (
        tl.load(at), tl.load(at + 1), tl.load(at + 2), tl.load(at + 3), tl.load(at + 4),
        tl.load(at + 5), tl.load(at + 6), tl.load(at + 7), tl.load(at + 8),
    )  # fmt: skip


@triton.jit
def readable_tile(
    rows, columns, spans, asking, stored, mask, mask_row, mask_column, queries, keys,
    SPANS: tl.constexpr, DOCUMENTS: tl.constexpr, MASK: tl.constexpr,
):  # fmt: skip
    """Which keys may be read."""
    inside, within = rows < queries, columns < keys
    readable = inside & within
    if SPANS:
        readable = readable & (columns >= tl.load(spans + rows, mask=inside, other=0))
        readable = readable & (columns < tl.load(spans + queries + rows, mask=inside, other=0))
    if DOCUMENTS:
        ours = tl.load(asking + rows, mask=inside, other=0)
        theirs = tl.load(stored + columns, mask=within, other=0)
        readable = readable & (ours == theirs)
    if MASK:
        at = rows.to(tl.int64) * mask_row + columns.to(tl.int64) * mask_column
        readable = readable & (tl.load(mask + at, mask=readable, other=0) != 0)
    return readable


@triton.jit
def load_plane(plane, rows, columns, row_stride, column_stride, readable):
    """The numbers of a bias for a tile, 0 where nothing is read."""
    at = rows.to(tl.int64) * row_stride + columns.to(tl.int64) * column_stride
    return tl.load(plane + at, mask=readable, other=0.0)


@triton.jit
def load_rows(numbers, rows, length, columns, width):
    """Some rows and columns of (length, width), 0 outside of them."""
    at = rows[:, None].to(tl.int64) * width + columns[None, :]
    inside = (rows < length)[:, None] & (columns < width)[None, :]
    return tl.load(numbers + at, mask=inside, other=0.0)


@triton.jit
def store_rows(numbers, rows, length, columns, width, tile):
    at = rows[:, None].to(tl.int64) * width + columns[None, :]
    inside = (rows < length)[:, None] & (columns < width)[None, :]
    tl.store(numbers + at, tile, mask=inside)


@triton.jit
def keys_of(spans, rows, queries, keys, SPANS: tl.constexpr):
    """The keys that some of these queries read: the first, and the one after the last."""
    begin, end = 0, keys
    if SPANS:
        inside = rows < queries
        begin = tl.min(tl.load(spans + rows, mask=inside, other=keys), 0)
        end = tl.max(tl.load(spans + queries + rows, mask=inside, other=0), 0)
    return begin, end


@triton.jit
def queries_of(spans, key_begin, key_end, queries, SPANS: tl.constexpr):
    """The queries that read some of the keys from `key_begin` to `key_end`: the first, and the one after the last."""
    begin, end = 0, queries
    if SPANS:
        begins = tl.full((CHUNK,), 1 << 30, tl.int32)
        ends = tl.zeros((CHUNK,), tl.int32)
        for position in range(0, queries, CHUNK):
            rows = position + tl.arange(0, CHUNK)
            low = tl.load(spans + rows, mask=rows < queries, other=0)
            high = tl.load(spans + queries + rows, mask=rows < queries, other=0)
            reads = (low < key_end) & (high > key_begin) & (low < high)
            begins = tl.minimum(begins, tl.where(reads, rows, 1 << 30))
            ends = tl.maximum(ends, tl.where(reads, rows + 1, 0))
        begin, end = tl.min(begins, 0), tl.max(ends, 0)
    return begin, end


@triton.jit
def share_of(begin, end, number, shares, INNER: tl.constexpr):
    """One of the shares of the positions from `begin` to `end`, in whole blocks."""
    begin = begin // INNER * INNER
    share = tl.cdiv(tl.cdiv(end - begin, INNER), shares) * INNER
    begin += share * number
    return begin, tl.minimum(end, begin + share)


@triton.jit
def weigh_tile(scores, norms, rows, queries, factor):
    """e^(factor (score - peak)) / total, for peaks and totals that lie one row after the other.

    The peak is subtracted first: a product so large that it is rounded must not be subtracted.
    """
    peak = tl.load(norms + rows, mask=rows < queries, other=0.0)
    total = tl.load(norms + queries + rows, mask=rows < queries, other=1.0)
    peak = tl.where(total > 0.0, peak, 0.0)  # nothing to read
    return tl.exp2((scores - peak) * (factor * LOG2E)) / tl.where(total > 0.0, total, 1.0)
