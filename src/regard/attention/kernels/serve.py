"""From a request to its reading, whichever kernel serves it."""

from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from regard.attention.kernels.choose import MATMUL, SDPA, Kernel, choose
from regard.attention.kernels.narrowing import narrowed
from regard.attention.kernels.request import Request
from regard.attention.kernels.zeroed import are_finite, zeroed
from regard.attention.masks import Given, Mask
from regard.attention.masks.positions import Band
from regard.attention.masks.sequences import Packed, SentenceSpan
from regard.attention.products import product_dtype
from regard.attention.shapes import broadcast
from regard.loops.availability import transformed

ROOM = 1 << 22  # booleans held at a time


def serve(request: Request, value: Tensor) -> Tensor:
    """The reading. Keys and values that a query may not read have no effect, even if they are NaN."""
    request, value = narrowed(request, value)
    kernel = choose(request, value)
    if request.mask is None and request.bias is None:
        return kernel.attend(request, value)
    if kernel is SDPA or kernel is MATMUL:
        packing = _packing(request)
        if packing is not None:
            return _one_by_one(packing, request, value)
    if not value.is_cpu or transformed():
        return kernel.attend(request, value)
    reading = kernel.attend(request, value)
    # A key or query that no reading shows may still spoil gradients. Where none are wanted the keys
    # of a decoder's single query are not summed: they are as many numbers as its scores take.
    whole = are_finite(reading) and (
        not reading.requires_grad or are_finite(request.key, request.query)
    )
    return reading if whole else _apart(kernel, request, value, reading)


def _apart(kernel: Kernel, request: Request, value: Tensor, spoilt: Tensor) -> Tensor:
    """The reading where something holds NaN or infinity.

    Queries that may not read such keys and values read zeros in their place; such queries are zeros
    where they may read nothing. Other rows that use these numbers keep their result, without
    gradients.
    """
    found = zeroed(request, value)
    if found is None:
        return spoilt
    reading = kernel.attend(found.request, value.masked_fill(found.keys.unsqueeze(-1), 0.0))
    height = max(1, ROOM // max(1, request.keys * found.keys.shape[:-1].numel()))
    rows = torch.arange(request.queries, device=request.frame.device).split(height)
    touched = torch.cat([found.spoilt(strip) for strip in rows], -2)
    return torch.where(touched, spoilt.detach(), reading)


def _packing(request: Request) -> Packed | None:
    """How the sentences of a request are packed, if they are."""
    if not isinstance(request.mask, Mask):
        return None
    return next((part for part in request.mask.rules() if isinstance(part, Packed)), None)


def _one_by_one(packing: Packed, request: Request, value: Tensor) -> Tensor:
    """The readings of packed sentences, each a request of its own: no pair outside of them is scored."""
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
        readings.append(serve(own, held).expand(shape))
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
    for part in cast(Mask, request.mask).rules():
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
