"""How far each key stands from each query."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

from regard.attention.shapes import ShapeError


def offsets(
    queries: int, keys: int, start: int = 0, device: torch.device | str | None = None
) -> Int[Tensor, "queries keys"]:
    """``j - (start + i)`` for query i and key j: below 0 where the key comes first.

    Example:
        >>> offsets(2, 3, start=1)
        tensor([[-1,  0,  1],
                [-2, -1,  0]])
    """
    if min(queries, keys, start) < 0:
        raise ShapeError(
            f"got {queries} queries from place {start} on and {keys} keys: pass none below 0"
        )
    query = torch.arange(start, start + queries, device=device)
    return torch.arange(keys, device=device) - query[:, None]
