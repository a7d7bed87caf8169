"""Masks as the compiled kernels read them: a span of keys for each query, documents, and booleans.

A band, padding, packed sentences and their intersections are spans, so they cost memory O(queries),
and keys outside of all spans are never visited. Documents are two rows of numbers. Other masks (a
tensor, a function, a union) become booleans, with the axes they have.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.attention.masks import Mask
from regard.attention.masks.mask import Both, SpanMask, lead
from regard.attention.masks.sequences import Documents
from regard.attention.shapes import Frame, Shape, broadcast


@dataclass(frozen=True)
class Rules:
    """Which keys may be read: spans of keys, documents, booleans; each may be missing."""

    low: Tensor | None
    high: Tensor | None
    asking: Tensor | None
    stored: Tensor | None
    mask: Tensor | None


def batch_of(
    a: Tensor, c: Tensor, w: Tensor, v: Tensor, bias: Tensor | None, rules: Rules
) -> Shape:
    """The batch axes of the reading of queries a, keys c, score weights w and values v."""
    shapes = [a.shape[:-2], c.shape[:-2], w.shape[:-1], v.shape[:-2]]
    shapes += [plane.shape[:-2] for plane in (bias, rules.mask) if plane is not None]
    spans = (rules.low, rules.high, rules.asking, rules.stored)
    shapes += [row.shape[:-1] for row in spans if row is not None]
    return broadcast(*(tuple(shape) for shape in shapes))


def rules_of(mask: Mask | Tensor | None, frame: Frame) -> Rules:
    """The rules of a request's mask."""
    if mask is None:
        return Rules(None, None, None, None, None)
    if isinstance(mask, Tensor):
        return Rules(None, None, None, None, mask)
    low = high = asking = stored = dense = None
    for part in parts(mask):
        if isinstance(part, SpanMask):
            begin, end = part.spans(frame)
            low = begin if low is None else torch.maximum(low, begin)
            high = end if high is None else torch.minimum(high, end)
        elif isinstance(part, Documents) and asking is None:
            asking, stored = _documents(part, frame)
        else:
            window = _window(part, frame)
            dense = window if dense is None else dense & window
    return Rules(low, high, asking, stored, dense)


def parts(mask: Mask) -> list[Mask]:
    """The masks that `&` joined."""
    if isinstance(mask, Both):
        return parts(mask.left) + parts(mask.right)
    return [mask]


def _documents(mask: Documents, frame: Frame) -> tuple[Tensor, Tensor]:
    nowhere = torch.arange(0, device=frame.device)
    mask.window(nowhere, nowhere, frame)  # checks the lengths
    asking = lead(mask.query_ids.to(frame.device, torch.int64), 1, frame, "query_ids")
    stored = lead(mask.key_ids.to(frame.device, torch.int64), 1, frame, "key_ids")
    return (
        asking.expand(*asking.shape[:-1], frame.queries),
        stored.expand(*stored.shape[:-1], frame.keys),
    )


def _window(mask: Mask, frame: Frame) -> Tensor:
    rows = torch.arange(frame.queries, device=frame.device)
    return mask.window(rows, torch.arange(frame.keys, device=frame.device), frame)
