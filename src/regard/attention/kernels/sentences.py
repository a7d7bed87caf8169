"""Packed sentences one after the other: the blocks on the diagonal, and no pair outside of them."""

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from regard.attention.kernels.request import Request
from regard.attention.masks import Given, Mask
from regard.attention.masks.positions import Band
from regard.attention.masks.sequences import Packed, SentenceSpan
from regard.attention.products import product_dtype
from regard.attention.shapes import broadcast


def packing(request: Request) -> Packed | None:
    """How the sentences of a request are packed, if they are."""
    if not isinstance(request.mask, Mask):
        return None
    return next((part for part in request.mask.parts() if isinstance(part, Packed)), None)


def one_by_one(
    packing: Packed, request: Request, value: Tensor, attend: Callable[[Request, Tensor], Tensor]
) -> Tensor:
    """The readings of all sentences, each a request of its own."""
    nowhere = torch.arange(0, device=request.frame.device)
    packing.window(nowhere, nowhere, request.frame)  # checks the lengths
    batch = broadcast(request.batch(), tuple(value.shape[:-2]))
    queries = request.query.split(packing.lengths, -2)
    keys = request.key.split(packing.key_lengths, -2)
    values = value.split(packing.key_lengths, -2)
    readings = []
    for section, query, key, held in zip(packing.sections(), queries, keys, values, strict=True):
        shape = (*batch, len(section.rows), value.shape[-1])
        if not section.rows or not section.columns:
            readings.append(value.new_zeros(shape, dtype=product_dtype(value)))
            continue
        own = replace(
            request,
            query=query,
            key=key,
            bias=_bias(request.bias, section),
            mask=_mask(request, packing, section),
            frame=request.frame._replace(queries=len(section.rows), keys=len(section.columns)),
        )
        readings.append(attend(own, held).expand(shape))
    return torch.cat(readings, -2)


def _bias(bias: Tensor | None, section: SentenceSpan) -> Tensor | None:
    if bias is None:
        return None
    rows, columns = (slice(s.start, s.stop) for s in section)
    bias = bias[..., rows, :] if bias.shape[-2] > 1 else bias
    return bias[..., columns] if bias.shape[-1] > 1 else bias


def _mask(request: Request, packing: Packed, section: SentenceSpan) -> Mask | Tensor | None:
    """The other masks within a sentence; None where they forbid nothing there."""
    frame, joint = request.frame, None
    at, of = (torch.arange(s.start, s.stop, device=frame.device) for s in section)
    for part in cast(Mask, request.mask).parts():
        if part is packing:
            continue
        if isinstance(part, Band):
            every = part.reach(section.rows, frame).every
            if every.start <= section.columns.start and section.columns.stop <= every.stop:
                continue
            own: Mask = part.within(*section, frame)
        else:
            own = Given(part.window(at, of, frame))
        joint = own if joint is None else joint & own
    return joint.tensor if isinstance(joint, Given) else joint
