"""Numbers by which heads are sorted: each is a mean over the queries that read any key."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

from regard.attention.looks import Look

BLOCK = 1 << 22  # weights computed at a time

Measures = dict[str, list[float]]


@torch.no_grad()
def measures(look: Look, kind: str) -> Measures:
    """Entropy, distance, and the weights of the diagonal, of the key before it and of the first key.

    Args:
        look: (queries, keys) or (heads, queries, keys).
        kind: in "cross" attention a query's own position is the proportional one.
    """
    *batch, queries, keys = look.shape
    heads = prod(batch)
    own = torch.arange(queries, device=look.device)
    if kind == "cross" or queries > keys:
        own = own * keys // max(1, queries)
    elif queries < keys:
        own = own + keys - queries
    sums = {name: torch.zeros(heads) for name in ("distance", "diagonal", "previous", "sink")}
    counted = torch.zeros(heads)
    columns = torch.arange(keys, device=look.device)
    height = max(1, BLOCK // max(1, heads * keys))
    for start in range(0, queries if keys else 0, height):
        rows = range(start, min(start + height, queries))
        weights = look.weights(rows=rows).reshape(heads, len(rows), keys)
        place = own[rows.start : rows.stop]
        counted += (weights.sum(-1) > 0.5).sum(-1)
        away = (columns - place[:, None]).abs().to(weights)
        sums["distance"] += (weights * away).sum((-2, -1)).cpu()
        sums["diagonal"] += _at(weights, place)
        sums["previous"] += _at(weights, place - 1)
        sums["sink"] += weights[..., 0].sum(-1).cpu()
    sums["entropy"] = look.entropy().reshape(heads, queries).sum(-1).cpu()
    return {name: (total / counted.clamp(min=1)).tolist() for name, total in sums.items()}


def _at(weights: Tensor, place: Tensor) -> Tensor:
    """The weight of one key for each query, summed by head; 0 for positions outside."""
    inside = (place >= 0) & (place < weights.shape[-1])
    index = place.clamp(0, weights.shape[-1] - 1).expand(*weights.shape[:-1]).unsqueeze(-1)
    return (weights.gather(-1, index).squeeze(-1) * inside).sum(-1).cpu()
