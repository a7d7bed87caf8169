"""Requests without their mask, where it only cuts off keys at the ends: one step of a decoder, one padded sentence."""

from dataclasses import replace

import torch
from torch import Tensor

from regard.attention.kernels.request import Request
from regard.attention.masks import Mask
from regard.attention.masks.mask import covers
from regard.attention.normalisers import is_plain
from regard.attention.scores.prepare import is_pairwise
from regard.loops.availability import transformed


def narrowed(request: Request, value: Tensor) -> tuple[Request, Tensor]:
    """The request over the keys that are read, where all queries read the same run of them; else as it is."""
    columns = _common_keys(request, value)
    if columns is None:
        return request, value
    key, keys = request.key[..., columns, :], columns.stop - columns.start
    shorter = replace(request, key=key, mask=None, frame=request.frame._replace(keys=keys))
    return shorter, value[..., columns, :]


def _common_keys(request: Request, value: Tensor) -> slice | None:
    """The keys that every query reads, if no query reads any other; None where this cannot be told."""
    mask, frame = request.mask, request.frame
    if not isinstance(mask, Mask) or request.has_bias or not value.is_cpu or transformed():
        return None
    tensors = request.query, request.key, value
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return None  # without a mask, NaN in one query would reach the gradients of all keys
    if not (is_pairwise(request.score) and is_plain(request.normaliser)):
        return None
    if not (frame.queries and frame.keys):
        return None
    readable, common = mask.reach(range(frame.queries), frame)
    if not (readable and covers(common, readable)):
        return None
    if request.batch() != frame.batch:  # some batch entries are those of the mask alone
        return None
    return slice(readable.start, readable.stop)
