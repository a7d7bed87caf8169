"""flex_attention's mask_mod and score_mod as masks and scores of Regard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.attention.masks import Mask
from regard.attention.shapes import Frame


@dataclass(frozen=True, eq=False)
class FlexMask(Mask):
    """flex_attention's mask_mod: a function of one batch entry, head, query and key."""

    function: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]

    def window(self, rows: Tensor, columns: Tensor, frame: Frame) -> Tensor:
        entries, heads = (torch.arange(n, device=rows.device) for n in frame.batch[:2])
        if not (len(rows) and len(columns)):
            return rows.new_empty(*frame.batch[:2], len(rows), len(columns), dtype=torch.bool)
        return over_all(self.function)(entries, heads, rows, columns)


@dataclass(frozen=True)
class FlexScore:
    """score_mod(scale q . k, entry, head, query, key); Dong et al. 2024, arXiv 2412.05496, section 3.

    A score receives vectors without positions. So `with_positions` appends the position to each
    query and key as one more number.
    """

    function: Callable[..., Tensor]
    scale: float

    def __call__(self, query: Tensor, key: Tensor, /) -> Tensor:
        query, rows = query[..., :-1], query[..., -1].reshape(-1, query.shape[-2])[0].long()
        key, columns = key[..., :-1], key[..., -1].reshape(-1, key.shape[-2])[0].long()
        scores = (query * self.scale) @ key.mT
        entries, heads = (torch.arange(n, device=scores.device) for n in scores.shape[:2])
        return over_all(self.function, scored=True)(scores, entries, heads, rows, columns)


def with_positions(vectors: Tensor, positions: Tensor | None = None) -> Tensor:
    """Append each vector's position, in float32 at least, which is exact for positions to 2^24."""
    wide = torch.promote_types(vectors.dtype, torch.float32)
    where = torch.arange(vectors.shape[-2]) if positions is None else positions
    column = where.to(vectors.device, wide).unsqueeze(-1)
    return torch.cat([vectors.to(wide), column.expand(*vectors.shape[:-1], 1)], -1)


def over_all(function: Callable[..., Tensor], scored: bool = False) -> Callable[..., Tensor]:
    """Vectorise a function of (score,) entry, head, query and key over all of them."""
    first = (0,) if scored else ()
    for axis in (3, 2, 1, 0):
        axes = [0 if each == axis else None for each in range(4)]
        function = torch.vmap(function, in_dims=(*first, *axes))
    return function
