"""Requests without their mask, where it only cuts off keys at the ends: one step of a decoder, one padded sentence."""

import torch
from torch import Tensor

from regard.attention.kernels.request import Request
from regard.attention.masks.layout import Layout
from regard.attention.normalisers import is_plain
from regard.attention.scores.prepare import is_pairwise
from regard.attention.shapes import Frame


def narrowed(request: Request, value: Tensor, layout: Layout) -> tuple[Request, Tensor] | None:
    """The request over the keys that are read, where all queries read the same run of them; else None."""
    columns = layout.common_keys
    if columns is None or request.has_bias or not (request.is_plain or _is_local(request)):
        return None
    if torch.is_grad_enabled() and (
        request.query.requires_grad or request.key.requires_grad or value.requires_grad
    ):
        return None  # without a mask, NaN in one query would reach the gradients of all keys
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
    shorter.is_regular, shorter.is_plain = request.is_regular, request.is_plain
    return shorter, value


def _is_local(request: Request) -> bool:
    """Whether a weight depends only on the keys that may be read."""
    return is_pairwise(request.score) and is_plain(request.normaliser)
