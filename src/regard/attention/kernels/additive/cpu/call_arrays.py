"""From tensors with broadcast batch axes to the plain arrays that the loops read."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.attention.kernels.additive.cpu.groups import GROUP, Groups, arrange
from regard.attention.kernels.rules import Rules, batch_of
from regard.attention.shapes import Shape

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class CallArrays:
    """The arrays of one call, first axis the entries of each; `where` (batch, 9) indexes them."""

    batch: Shape
    queries: int
    keys: int
    hidden: int
    width: int
    where: Array
    a: Array
    c: Array
    w: Array
    groups: Groups
    sums: Array
    v: Array
    low: Array
    high: Array
    bias: Array
    mask: Array
    asking: Array
    stored: Array

    @property
    def entries(self) -> int:
        return prod(self.batch)

    @property
    def padded(self) -> int:
        return int(self.w.shape[1])


def state(
    a: Tensor, c: Tensor, w: Tensor, v: Tensor, bias: Tensor | None, rules: Rules
) -> CallArrays:
    """Lay out the tensors. Except for w, contiguous tensors are not copied."""
    batch = batch_of(a, c, w, v, bias, rules)
    (queries, hidden), (keys, width) = a.shape[-2:], v.shape[-2:]
    low, high = _spans(rules, queries, keys)
    none = a.new_empty(())
    asking = none.new_empty(0, dtype=torch.int64) if rules.asking is None else rules.asking
    stored = none.new_empty(0, dtype=torch.int64) if rules.stored is None else rules.stored
    plane = none.new_empty(0, 0) if bias is None else bias.to(a.dtype)
    mask = none.new_empty(0, 0, dtype=torch.uint8)
    if rules.mask is not None:
        mask = rules.mask.contiguous().view(torch.uint8)
    where = np.zeros((prod(batch), 9), np.int64)
    sides = (
        (a, 2),
        (c, 2),
        (w, 1),
        (v, 2),
        (low, 1),
        (plane, 2),
        (mask, 2),
        (asking, 1),
        (stored, 1),
    )
    for column, (tensor, own) in enumerate(sides):
        _place(where[:, column], tuple(tensor.shape[: tensor.ndim - own]), batch)
    weights = _pad(_rows(w.clone(), 1))  # FSDP resizes a parameter's storage: not where numpy looks
    return CallArrays(
        batch=batch,
        queries=queries,
        keys=keys,
        hidden=hidden,
        width=width,
        where=where,
        a=_flat(_rows(a, 2)),
        c=_flat(_rows(c, 2)),
        w=weights,
        groups=arrange(weights),
        sums=weights.sum(-1, dtype=np.float64).astype(weights.dtype),
        v=_flat(_rows(v, 2)),
        low=_rows(low, 1),
        high=_rows(high, 1),
        bias=_rows(plane, 2),
        mask=_rows(mask, 2),
        asking=_rows(asking, 1),
        stored=_rows(stored, 1),
    )


def _spans(rules: Rules, queries: int, keys: int) -> tuple[Tensor, Tensor]:
    if rules.low is None or rules.high is None:
        return torch.zeros(queries, dtype=torch.int64), torch.full((queries,), keys)
    low, high = torch.broadcast_tensors(rules.low, rules.high)
    low, high = low.expand(*low.shape[:-1], queries), high.expand(*high.shape[:-1], queries)
    return low.clamp(0, keys), high.clamp(0, keys)


def _place(column: Array, shape: Shape, batch: Shape) -> None:
    """The index of its own entry that each entry of the batch reads."""
    entries = prod(shape)
    if entries == len(column):
        column[:] = np.arange(entries)
    elif entries > 1:
        own = np.arange(entries).reshape((1,) * (len(batch) - len(shape)) + shape)
        column[:] = np.broadcast_to(own, batch).reshape(-1)


def _rows(tensor: Tensor, own: int) -> Array:
    """(entries, *own axes)."""
    front = prod(tensor.shape[: tensor.ndim - own])
    flat = tensor.detach().contiguous().reshape(front, *tensor.shape[tensor.ndim - own :])
    return flat.numpy()


def _flat(rows: Array) -> Array:
    return rows.reshape(len(rows), rows.shape[1] * rows.shape[2])


def _pad(weights: Array) -> Array:
    """Channels up to a whole number of pairs of groups, with weight 0."""
    missing = -weights.shape[1] % (2 * GROUP)
    if not missing:
        return weights
    return np.ascontiguousarray(np.pad(weights, ((0, 0), (0, missing))))
