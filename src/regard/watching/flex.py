"""flex_attention's functions of positions as our masks and scores."""

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
    heads: Tensor | None = None  # the heads that were kept, where not all were

    def window(self, rows: Tensor, columns: Tensor, frame: Frame) -> Tensor:
        entries = torch.arange(frame.batch[0], device=rows.device)
        heads = torch.arange(frame.batch[1], device=rows.device)
        if self.heads is not None:
            heads = self.heads.to(rows.device)
        if not (len(rows) and len(columns)):
            return rows.new_empty(*frame.batch[:2], len(rows), len(columns), dtype=torch.bool)
        return over_all(self.function)(entries, heads, rows, columns)


@dataclass(frozen=True)
class FlexScore:
    """score_mod(scale q . k, entry, head, query, key); Dong et al. 2024, arXiv 2412.05496, section 3.

    A score sees vectors and not where they stand, so that queries and keys come with their
    positions as one number more: `placed` appends it.
    """

    function: Callable[..., Tensor]
    scale: float
    heads: Tensor | None = None

    def __call__(self, query: Tensor, key: Tensor, /) -> Tensor:
        query, rows = query[..., :-1], query[..., -1].reshape(-1, query.shape[-2])[0].long()
        key, columns = key[..., :-1], key[..., -1].reshape(-1, key.shape[-2])[0].long()
        scores = (query * self.scale) @ key.mT
        entries, heads = (torch.arange(n, device=scores.device) for n in scores.shape[:2])
        if self.heads is not None:
            heads = self.heads.to(scores.device)
        return over_all(self.function, scored=True)(scores, entries, heads, rows, columns)


def placed(vectors: Tensor, positions: Tensor | None = None) -> Tensor:
    """Vectors with their positions as a last number: in float32, which holds whole ones to 2^24."""
    wide = torch.promote_types(vectors.dtype, torch.float32)
    where = torch.arange(vectors.shape[-2]) if positions is None else positions
    column = where.to(vectors.device, wide).unsqueeze(-1)
    return torch.cat([vectors.to(wide), column.expand(*vectors.shape[:-1], 1)], -1)


def over_all(function: Callable[..., Tensor], scored: bool = False) -> Callable[..., Tensor]:
    """A function of single (score,) entry, head, query and key as one of all of them."""
    first = (0,) if scored else ()
    for axes in (
        (None,) * 3 + (0,),
        (None, None, 0, None),
        (None, 0, None, None),
        (0,) + (None,) * 3,
    ):
        function = torch.vmap(function, in_dims=(*first, *axes))
    return function
