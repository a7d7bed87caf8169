"""How far a query looks."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.attention.looks.blocks import Block


def distance_of(block: Block, signed: bool) -> Tensor:
    """sum_j p_ij |j - i| of a block of neighbouring rows, or sum_j p_ij (j - i).

    Keys before the block's first row lie before all its rows: there |j - i| = (i - a) + (a - j), a
    being the first row, and one product with the vector (a - j) serves every row; so do the keys
    after it. Both terms are positive, so that nothing cancels. Only a square is left to be weighed
    pair by pair.
    """
    numerators, factors = block.shares()
    rows, columns = block.region.rows, block.region.columns
    first = int(rows[0]) if len(rows) else 0
    within = (rows - first).to(factors.dtype)
    offsets = torch.arange(columns.start - first, columns.stop - first, device=rows.device)
    offsets = offsets.to(factors.dtype)
    if signed:
        sums = numerators @ offsets - within * numerators.sum(-1)
        return sums * factors
    low = min(max(first - columns.start, 0), len(columns))
    high = min(max(first + len(rows) - columns.start, low), len(columns))
    before, own, after = (numerators[..., part] for part in _parts(low, high))
    sums = before @ -offsets[:low] + within * before.sum(-1)
    sums += after @ offsets[high:] - within * after.sum(-1)
    sums += (own * (offsets[low:high] - within.unsqueeze(-1)).abs()).sum(-1)
    return sums * factors


def _parts(low: int, high: int) -> tuple[slice, slice, slice]:
    return slice(None, low), slice(low, high), slice(high, None)
