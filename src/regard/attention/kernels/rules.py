"""Masks as the compiled kernels read them: a span of keys for each query, documents, and booleans.

A band, padding, packed sentences and their intersections are spans, so they cost memory O(queries),
and keys outside of all spans are never visited. Documents are two rows of numbers. Other masks (a
tensor, a function, a union) become booleans, with the axes they have.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from regard.attention.masks import Mask
from regard.attention.masks.mask import SpanMask
from regard.attention.masks.sequences import Documents
from regard.attention.shapes import Frame


class Rules(NamedTuple):
    """Which keys may be read: spans of keys, documents, booleans; each may be missing."""

    low: Tensor | None = None
    high: Tensor | None = None
    asking: Tensor | None = None
    stored: Tensor | None = None
    mask: Tensor | None = None


def rules_of(mask: Mask | Tensor | None, frame: Frame) -> Rules:
    """The rules of a request's mask."""
    if mask is None:
        return Rules()
    if isinstance(mask, Tensor):
        return Rules(mask=mask)
    low = high = asking = stored = dense = None
    for part in mask.parts():
        if isinstance(part, SpanMask):
            begin, end = part.spans(frame)
            low = begin if low is None else torch.maximum(low, begin)
            high = end if high is None else torch.minimum(high, end)
        elif isinstance(part, Documents) and asking is None:
            asking, stored = (
                ids.long().expand(*ids.shape[:-1], length)
                for ids, length in zip(part.ids(frame), (frame.queries, frame.keys), strict=True)
            )
        else:
            rows, columns = (
                torch.arange(n, device=frame.device) for n in (frame.queries, frame.keys)
            )
            window = part.window(rows, columns, frame)
            dense = window if dense is None else dense & window
    return Rules(low, high, asking, stored, dense)
