"""The reading of a block of queries, with an online softmax over blocks of keys.

Source: Milakov and Gimelshein 2018, arXiv 1805.02867; Dao et al. 2022, arXiv 2205.14135, algorithm 1.
"""

import triton
import triton.language as tl

from regard.attention.kernels.additive.triton.tiles import (
    LOG2E,
    load_values,
    pointers_of,
    score_tile,
    span_of,
)


@triton.jit
def forward(
    where, a, c, w, v, spans, asking, stored,
    mask, mask_entry, mask_row, mask_column, bias, bias_entry, bias_row, bias_column,
    reading, norms, queries, keys, hidden, width, factor, cap,
    DOCUMENTS: tl.constexpr, MASK: tl.constexpr, BIAS: tl.constexpr, CAPPED: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Program (query block, batch entry, stretch of the value's width)."""
    entry = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    wide = tl.program_id(2) * WIDE + tl.arange(0, WIDE)
    a, c, w, v, low, high, asking, stored, mask, bias = pointers_of(
        entry, where, a, c, w, v, spans, asking, stored, mask, mask_entry, bias, bias_entry,
        queries, keys, hidden, width,
    )  # fmt: skip
    peak = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    blend = tl.zeros((ROWS, WIDE), tl.float32)
    begin, end = span_of(low, high, rows, queries, keys)
    for position in range(begin // COLUMNS * COLUMNS, end, COLUMNS):
        columns = position + tl.arange(0, COLUMNS)
        _, scores = score_tile(
            a, c, w, rows, columns, queries, keys, hidden, cap, low, high, asking, stored,
            mask, mask_row, mask_column, bias, bias_row, bias_column, DOCUMENTS, MASK, BIAS, CAPPED,
        )  # fmt: skip
        higher = tl.maximum(peak, tl.max(scores, 1))
        ground = tl.where(higher == float("-inf"), 0.0, higher)
        weights = tl.exp2((scores - ground[:, None]) * (factor * LOG2E))
        fade = tl.exp2((peak - ground) * (factor * LOG2E))
        total = total * fade + tl.sum(weights, 1)
        values = load_values(v, columns, keys, wide, width)
        blend = blend * fade[:, None] + tl.dot(weights, values, input_precision="ieee")
        peak = higher
    some = total > 0.0
    blend = blend / tl.where(some, total, 1.0)[:, None]
    place = (entry * queries + rows)[:, None] * width + wide[None, :]
    inside = (rows < queries)[:, None] & (wide < width)[None, :]
    tl.store(reading + place, blend, mask=inside)
    if tl.program_id(2) == 0:
        norms += entry * 2 * queries
        tl.store(norms + rows, tl.where(some, peak, 0.0), mask=rows < queries)
        tl.store(norms + queries + rows, tl.where(some, total, 1.0), mask=rows < queries)
