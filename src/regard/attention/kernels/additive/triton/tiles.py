"""Steps of the kernels for a tile of queries x keys: score it, mask it, weigh it.

    score = w . tanh(a + c) = sum_h w_h - 2 sum_h w_h r_h,   r_h = 1 / (1 + e^{2 (a_h + c_h)})

e^{2x} is 2^{2x log2 e}; where it is infinite r is 0, so the score is right for any a and c.
Features lie (hidden, length), so that neighbours in a row of a tile are neighbours in memory.
"""

import triton
import triton.language as tl

DOUBLE_LOG2E = tl.constexpr(2.8853900817779268)
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def reciprocal_tile(a, c):
    """r = 1 / (1 + e^(2 (a + c))) of all pairs: tanh is 1 - 2 r, its derivative 4 r (1 - r)."""
    return 1.0 / (1.0 + tl.exp2((a[:, None] + c[None, :]) * DOUBLE_LOG2E))


@triton.jit
def pointers_of(
    entry, where, a, c, w, v, spans, asking, stored, mask, mask_entry, bias, bias_entry,
    queries, keys, hidden, width,
):  # fmt: skip
    """The inputs of one batch entry; the columns of `where` are the sides, in their order."""
    at = where + entry * 9
    low = spans + tl.load(at + 4) * 2 * queries
    bias += tl.load(at + 5) * bias_entry
    mask += tl.load(at + 6) * mask_entry
    return (
        a + tl.load(at) * hidden * queries, c + tl.load(at + 1) * hidden * keys,
        w + tl.load(at + 2) * hidden, v + tl.load(at + 3) * keys * width, low, low + queries,
        asking + tl.load(at + 7) * queries, stored + tl.load(at + 8) * keys, mask, bias,
    )  # fmt: skip


@triton.jit
def score_tile(
    a, c, w, rows, columns, queries, keys, hidden, cap,
    low, high, asking, stored, mask, mask_row, mask_column, bias, bias_row, bias_column,
    DOCUMENTS: tl.constexpr, MASK: tl.constexpr, BIAS: tl.constexpr, CAPPED: tl.constexpr,
):  # fmt: skip
    """The scores, capped where there is a cap; and with their bias, -inf where a key may not be read."""
    inside, within = rows < queries, columns < keys
    total = tl.zeros((rows.shape[0], columns.shape[0]), tl.float32)
    offset = 0.0
    for h in range(hidden):
        weight = tl.load(w + h)
        asked = tl.load(a + h * queries + rows, mask=inside, other=0.0)
        held = tl.load(c + h * keys + columns, mask=within, other=0.0)
        total += weight * reciprocal_tile(asked, held)
        offset += weight
    capped = offset - 2.0 * total
    if CAPPED:
        capped = cap * (1.0 - 2.0 / (1.0 + tl.exp2(capped / cap * DOUBLE_LOG2E)))
    scores = capped
    first = tl.load(low + rows, mask=inside, other=0)
    after = tl.load(high + rows, mask=inside, other=0)
    readable = (columns[None, :] >= first[:, None]) & (columns[None, :] < after[:, None])
    readable = readable & inside[:, None] & within[None, :]
    if DOCUMENTS:
        ours = tl.load(asking + rows, mask=inside, other=0)
        theirs = tl.load(stored + columns, mask=within, other=0)
        readable = readable & (ours[:, None] == theirs[None, :])
    if MASK:
        at = rows[:, None].to(tl.int64) * mask_row + columns[None, :] * mask_column
        readable = readable & (tl.load(mask + at, mask=readable, other=0) != 0)
    if BIAS:
        at = rows[:, None].to(tl.int64) * bias_row + columns[None, :] * bias_column
        scores += tl.load(bias + at, mask=readable, other=0.0)
    return capped, tl.where(readable, scores, float("-inf"))


@triton.jit
def weigh_tile(scores, norms, rows, queries, factor):
    """e^(factor (score - peak)) / total, for peaks and totals that lie one row after the other.

    The peak is subtracted first: a product so large that it is rounded must not be subtracted.
    """
    peak = tl.load(norms + rows, mask=rows < queries, other=0.0)
    total = tl.load(norms + queries + rows, mask=rows < queries, other=1.0)
    return tl.exp2((scores - peak[:, None]) * (factor * LOG2E)) / total[:, None]


@triton.jit
def load_values(values, rows, length, columns, width):
    """Some rows and columns of (length, width), in float32."""
    at = rows[:, None].to(tl.int64) * width + columns[None, :]
    inside = (rows < length)[:, None] & (columns < width)[None, :]
    return tl.load(values + at, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def span_of(low, high, rows, queries, keys):
    """The keys that some of these queries read: the first, and the one after the last."""
    inside = rows < queries
    first = tl.min(tl.load(low + rows, mask=inside, other=keys), 0)
    after = tl.max(tl.load(high + rows, mask=inside, other=0), 0)
    return tl.maximum(first, 0), tl.minimum(after, keys)
