"""The tensors of a call with one batch axis each, and which entry of each one a reading uses."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

from regard.attention.kernels.rules import Rules
from regard.attention.shapes import Shape, broadcast

OWN = (
    2,
    2,
    1,
    2,
    2,
    2,
    2,
    1,
    1,
)  # axes of their own that the sides have, behind those of the batch


def sides_of(
    a: Tensor, c: Tensor, w: Tensor, v: Tensor, bias: Tensor | None, rules: Rules
) -> tuple[Tensor, ...]:
    """a, c, w, v, spans (2, queries), bias, mask, asking, stored; what is missing is empty."""
    queries, keys = a.shape[-2], c.shape[-2]
    if rules.low is None or rules.high is None:
        low = torch.zeros(queries, dtype=torch.int64, device=a.device)
        high = torch.full_like(low, keys)
    else:
        low, high = torch.broadcast_tensors(rules.low, rules.high)
    spans = torch.stack([low, high], -2).clamp(0, keys)
    nothing = torch.empty(0, dtype=torch.int64, device=a.device)
    plane = a.new_empty(0, 0)
    return (
        *(a, c, w, v, spans.expand(*spans.shape[:-1], queries)),
        plane if bias is None else bias,
        (plane.bool() if rules.mask is None else rules.mask).contiguous().view(torch.uint8),
        nothing if rules.asking is None else rules.asking,
        nothing if rules.stored is None else rules.stored,
    )


def batch_of(sides: Sequence[Tensor]) -> Shape:
    """The batch axes of the reading."""
    return broadcast(*(tuple(t.shape[: t.ndim - n]) for t, n in zip(sides, OWN, strict=True)))


def flatten(sides: Sequence[Tensor], batch: Shape) -> tuple[list[Tensor], Tensor]:
    """Each side as (entries, *own axes), and (batch, sides): the entry that each entry of the batch reads."""
    flat, where = [], torch.zeros(prod(batch), len(OWN), dtype=torch.int64, device=sides[0].device)
    for k, (tensor, own) in enumerate(zip(sides, OWN, strict=True)):
        front, rest = tensor.shape[: tensor.ndim - own], tensor.shape[tensor.ndim - own :]
        entries = prod(front)
        if entries > 1:
            index = torch.arange(entries, device=tensor.device).reshape(front)
            where[:, k] = index.expand(batch).reshape(-1)
        flat.append(tensor.reshape(entries, *rest))
    return flat, where
