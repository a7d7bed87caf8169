"""The gradient of the bias: of each of its numbers, the sum over all pairs that it is added to.

    dbias_ij = p_ij (upstream_i . v_j - upstream_i . reading_i) / T

A bias may stand for many queries, keys or batch entries. One program adds up all that a tile of it
stands for, in one order, so that the gradient takes the bias's own memory and no atomics.
"""

import triton
import triton.language as tl

from regard.attention.kernels.additive.triton.backward import gradient_tile
from regard.attention.kernels.additive.triton.tiles import (
    pointers_of,
    score_tile,
    span_of,
    weigh_tile,
)


@triton.jit
def bias_gradients(
    where, a, c, w, v, spans, asking, stored,
    mask, mask_entry, mask_row, mask_column, bias, bias_entry, bias_row, bias_column,
    norms, upstream, means, order, starts, gradients, queries, keys, hidden, width, factor, cap,
    DOCUMENTS: tl.constexpr, MASK: tl.constexpr, BIAS: tl.constexpr, CAPPED: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, WIDE: tl.constexpr,
    ONE_ROW: tl.constexpr, ONE_COLUMN: tl.constexpr,
):  # fmt: skip
    """Program (block of the bias's rows, of its columns, entry of the bias).

    order: batch entries, those that share a bias together; starts: where each bias's begin.
    """
    own = tl.program_id(2)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    row, column = tl.program_id(0) * ROWS, tl.program_id(1) * COLUMNS
    row_end, column_end = row + ROWS, column + COLUMNS
    if ONE_ROW:
        row_end = queries
    if ONE_COLUMN:
        column_end = keys
    for place in range(tl.load(starts + own), tl.load(starts + own + 1)):
        entry = tl.load(order + place)
        here_a, here_c, here_w, here_v, low, high, ours, theirs, here_mask, here_bias = pointers_of(
            entry, where, a, c, w, v, spans, asking, stored, mask, mask_entry, bias, bias_entry,
            queries, keys, hidden, width,
        )  # fmt: skip
        for first_row in range(row, row_end, ROWS):
            rows = first_row + tl.arange(0, ROWS)
            first, after = span_of(low, high, rows, queries, keys)
            for first_column in range(column, column_end, COLUMNS):
                if (after > first_column) & (first < first_column + COLUMNS):
                    columns = first_column + tl.arange(0, COLUMNS)
                    _, scores = score_tile(
                        here_a, here_c, here_w, rows, columns, queries, keys, hidden, cap,
                        low, high, ours, theirs, here_mask, mask_row, mask_column,
                        here_bias, bias_row, bias_column, DOCUMENTS, MASK, BIAS, CAPPED,
                    )  # fmt: skip
                    weights = weigh_tile(scores, norms + entry * 2 * queries, rows, queries, factor)
                    total += gradient_tile(
                        weights, upstream + entry * queries * width, here_v,
                        means + entry * queries, rows, columns, queries, keys, width, factor, WIDE,
                    )  # fmt: skip
    rows, columns = row + tl.arange(0, ROWS), column + tl.arange(0, COLUMNS)
    gradients += own.to(tl.int64) * bias_entry
    if ONE_ROW and ONE_COLUMN:
        tl.store(gradients, tl.sum(tl.sum(total, 1), 0))
    elif ONE_ROW:
        tl.store(gradients + columns, tl.sum(total, 0), mask=columns < keys)
    elif ONE_COLUMN:
        tl.store(gradients + rows, tl.sum(total, 1), mask=rows < queries)
    else:
        inside = (rows < queries)[:, None] & (columns < keys)[None, :]
        tl.store(
            gradients + rows[:, None].to(tl.int64) * keys + columns[None, :], total, mask=inside
        )
