"""The best few entries of blocks of them, with their weights among all."""

from collections.abc import Iterable

import torch
from torch import Tensor

from regard.attention.parts import Part
from regard.attention.ranking import top


def search(blocks: Iterable[tuple[int, Tensor]], k: int) -> tuple[Tensor, Tensor]:
    """The largest softmax weights of each query, and where they stand; of equal ones the first.

    Args:
        blocks: the first position of each block in their order, and its scores.
        k: how many are wanted.
    """
    total: Part | None = None
    for start, scores in blocks:
        share = Part.of(scores, scores.new_zeros(scores.shape[-1], 0))
        highest, places = top(scores, k)
        if total is None:
            total, best, positions = share, highest, places + start
            continue
        total = total + share
        if best.shape[-1] < k or not (share.maximum <= best[..., -1]).all():
            both = torch.cat([positions, places + start], -1)
            best, order = top(torch.cat([best, highest], -1), k)
            positions = both.gather(-1, order)
    assert total is not None
    weights = torch.exp(best.double() - total.log_normaliser().unsqueeze(-1))
    return weights.to(best), positions
