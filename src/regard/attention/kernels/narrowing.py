"""Requests without their mask, where it only cuts off keys at the ends: one step of a decoder, one padded sentence."""

import torch
from torch import Tensor

from regard.attention.kernels.request import Request
from regard.attention.normalisers import is_plain
from regard.attention.scores.prepare import is_pairwise
from regard.attention.shapes import Frame


def narrowed(request: Request, value: Tensor) -> tuple[Request, Tensor]:
    """The request over the keys that are read, where all queries read the same run of them; else as it is."""
    columns = _common_keys(request, value)
    if columns is None:
        return request, value
    key, keys = request.key, len(columns)
    if keys != request.keys:
        key, value = (side.narrow(-2, columns.start, keys) for side in (key, value))
    batch, queries, _, device = request.frame
    shorter = Request(
        request.query,
        key,
        request.score,
        None,
        None,
        request.normaliser,
        request.dropout,
        Frame(batch, queries, keys, device),
    )
    shorter.is_regular = request.is_regular
    return shorter, value


def _common_keys(request: Request, value: Tensor) -> range | None:
    """The keys that every query reads, if no query reads any other; None where this cannot be told."""
    if request.layout is None or request.has_bias:
        return None
    columns = request.layout.common_keys()
    if columns is None:
        return None
    if torch.is_grad_enabled() and (
        request.query.requires_grad or request.key.requires_grad or value.requires_grad
    ):
        return None  # without a mask, NaN in one query would reach the gradients of all keys
    return columns if is_pairwise(request.score) and is_plain(request.normaliser) else None
