"""The first and the last key that each query reads: kernels visit no keys outside, and need no matrix of the mask."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from regard.attention.masks import Mask
from regard.attention.masks.mask import Both, Either, SpanMask, pick
from regard.attention.masks.sequences import Documents
from regard.attention.shapes import Frame, broadcast
from regard.loops.availability import capturing, transformed


@dataclass(frozen=True, eq=False)
class Spans(SpanMask):
    """The keys from `low` to before `high`, (*batch, queries), of each query."""

    low: Tensor
    high: Tensor

    def spans(self, frame: Frame, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        if rows is None:
            return self.low, self.high
        return pick(self.low, -1, rows), pick(self.high, -1, rows)


class Bounds(NamedTuple):
    """The first key that each query may read, and the one after the last; (*batch, queries) or fewer axes."""

    low: Tensor
    high: Tensor
    exact: bool  # all keys between them may be read


def bounds_of(mask: Mask, frame: Frame) -> Bounds | None:
    """The bounds of a mask; None where they are all keys, or not known."""
    if isinstance(mask, SpanMask):
        low, high = (side.clamp(0, frame.keys) for side in mask.spans(frame))
        return Bounds(low, high, True)
    if isinstance(mask, Both):
        return _of_both(bounds_of(mask.left, frame), bounds_of(mask.right, frame))
    # The others compare numbers to see whether they are exact.
    if transformed() or capturing(frame.device) or not frame.keys:
        return None
    if isinstance(mask, Documents):
        return _of_documents(*mask.ids(frame), frame)
    if isinstance(mask, Either):
        return _of_either(bounds_of(mask.left, frame), bounds_of(mask.right, frame))
    return None


def _of_both(a: Bounds | None, b: Bounds | None) -> Bounds | None:
    if a is None or b is None:
        bounds = a or b
        return bounds and bounds._replace(exact=False)
    low, high = torch.maximum(a.low, b.low), torch.minimum(a.high, b.high)
    return Bounds(low, high, a.exact and b.exact)


def _of_either(a: Bounds | None, b: Bounds | None) -> Bounds | None:
    """From the first to the last key of the two; exact where they touch, or one is empty."""
    if a is None or b is None:
        return None
    no_a, no_b = a.high <= a.low, b.high <= b.low
    low = torch.where(no_b, a.low, torch.minimum(a.low, b.low))
    high = torch.where(no_b, a.high, torch.maximum(a.high, b.high))
    low, high = torch.where(no_a, b.low, low), torch.where(no_a, b.high, high)
    touch = torch.maximum(a.low, b.low) <= torch.minimum(a.high, b.high)
    exact = a.exact and b.exact and bool((touch | no_a | no_b).all())
    return Bounds(low, high, exact)


def _of_documents(asking: Tensor, stored: Tensor, frame: Frame) -> Bounds:
    """From the first to the last key of each query's document; exact where documents are runs of keys."""
    front = broadcast(tuple(asking.shape[:-1]), tuple(stored.shape[:-1]))
    asking = asking.long().expand(*front, asking.shape[-1]).contiguous()
    ordered, places = stored.long().expand(*front, frame.keys).sort(dim=-1, stable=True)
    begin = torch.searchsorted(ordered, asking)
    end = torch.searchsorted(ordered, asking, right=True)
    low = places.gather(-1, begin.clamp(max=frame.keys - 1))
    high = places.gather(-1, (end - 1).clamp(min=0)) + 1
    high = torch.where(begin < end, high, low)  # no such document
    return Bounds(low, high, bool((high - low == end - begin).all()))
