"""Masks as the kernel reads them: a span of keys for each query, documents, and booleans.

A band, padding and what both let read are spans, so they cost memory O(queries). Documents are two
rows of numbers. What is left (a tensor, a function, a union) is booleans, with the axes it has.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.attention.kernels.cpu.problem import Rules
from regard.attention.masks import Mask
from regard.attention.masks.documents import Documents
from regard.attention.masks.mask import Both, lead
from regard.attention.masks.padding import Padding
from regard.attention.masks.positions import Band
from regard.attention.shapes import Frame


def rules_of(mask: Mask | Tensor | None, frame: Frame) -> Rules:
    """The rules of a request's mask."""
    if mask is None:
        return Rules(None, None, None, None, None)
    if isinstance(mask, Tensor):
        return Rules(None, None, None, None, mask)
    low = high = asking = stored = dense = None
    for part in _parts(mask):
        if isinstance(part, Band | Padding):
            begin, end = _span(part, frame)
            low = begin if low is None else torch.maximum(low, begin)
            high = end if high is None else torch.minimum(high, end)
        elif isinstance(part, Documents) and asking is None:
            asking, stored = _documents(part, frame)
        else:
            window = _window(part, frame)
            dense = window if dense is None else dense & window
    return Rules(low, high, asking, stored, dense)


def _parts(mask: Mask) -> list[Mask]:
    if isinstance(mask, Both):
        return _parts(mask.left) + _parts(mask.right)
    return [mask]


def _span(mask: Band | Padding, frame: Frame) -> tuple[Tensor, Tensor]:
    """The first key each query may read, and the one after the last."""
    if isinstance(mask, Padding):
        lengths = lead(mask.lengths.to(frame.device, torch.int64), 0, frame, "lengths")[..., None]
        return torch.zeros_like(lengths), lengths
    here = torch.arange(frame.queries, device=frame.device)
    if mask.align == "end":
        here = here + (frame.keys - frame.queries)
    low = torch.zeros_like(here) if mask.before is None else here - mask.before
    high = torch.full_like(here, frame.keys) if mask.after is None else here + mask.after + 1
    return low, high


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
