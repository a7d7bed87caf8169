"""Which cells of a map are masked, so that a picture can tell them from weights of 0."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.attention.looks.statistics import Statistics


def masked(
    look: Statistics,
    cells: Float[Tensor, "*batch height width"],
    rows: Int[Tensor, " rows"],
    columns: Int[Tensor, " columns"],
) -> Bool[Tensor, "*batch height width"]:
    """Whether a cell is 0 and the queries at its corners may not read the keys there.

    Args:
        look: the look whose map it is.
        cells: the map.
        rows: positions of the queries that it covers.
        columns: positions of the keys that it covers.
    """
    none = torch.zeros_like(cells, dtype=torch.bool)
    if not (len(rows) and len(columns)):
        return none
    *batch, height, width = cells.shape
    readable = look.readable(
        rows[_corners(len(rows), height)], columns[_corners(len(columns), width)]
    )
    if readable is None:
        return none
    return (cells == 0) & ~readable.reshape(*batch, 2, height, 2, width).any(-2).any(-3)


def _corners(length: int, count: int) -> Tensor:
    """The first position of each bin, then the last one of each."""
    edges = torch.arange(count + 1) * length // count
    return torch.cat([edges[:-1], torch.maximum(edges[:-1], edges[1:] - 1)])
