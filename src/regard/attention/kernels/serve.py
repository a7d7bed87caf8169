"""From a request to its reading, whichever kernel serves it."""

import torch
from torch import Tensor

from regard.attention.kernels.blocked import is_local
from regard.attention.kernels.choose import Kernel, choose
from regard.attention.kernels.request import Request
from regard.attention.kernels.zeroed import are_finite, has_nan, zeroed
from regard.attention.masks.layout import Layout
from regard.attention.shapes import Frame

ROOM = 1 << 22  # booleans held at a time


def serve(request: Request, value: Tensor) -> Tensor:
    """The reading. Keys and values that a query may not read have no effect, even if they are NaN."""
    is_masked, layout = request.is_masked, request.layout
    if layout is not None and (shorter := narrowed(request, value, layout)) is not None:
        request, value = shorter
        is_masked = False
    kernel = choose(request, value)
    reading = kernel.attend(request, value)
    if not is_masked or request.is_traced or not value.is_cpu:
        return reading
    is_spoilt = has_nan(reading)
    if not is_spoilt and reading.requires_grad and not request.checks_gradients:
        is_spoilt = not are_finite(request.key, request.query)
    return _apart(kernel, request, value, reading) if is_spoilt else reading


def narrowed(request: Request, value: Tensor, layout: Layout) -> tuple[Request, Tensor] | None:
    """The request without its mask, where that only cuts off keys at the ends; else None.

    So it is for one step of a decoder, and for one padded sentence.
    """
    columns = layout.common_keys
    if columns is None or request.has_bias or not (request.is_plain or is_local(request)):
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


def _apart(kernel: Kernel, request: Request, value: Tensor, spoilt: Tensor) -> Tensor:
    """The reading where something holds NaN or infinity.

    Queries that may not read such keys and values read zeros in their place; such queries are zeros
    where they may read nothing. Other rows that use these numbers keep their result, without
    gradients.
    """
    spoiling = zeroed(request, value)
    if spoiling is None:
        return spoilt
    reading = kernel.attend(spoiling.request, value.masked_fill(spoiling.keys.unsqueeze(-1), 0.0))
    height = max(1, ROOM // max(1, request.keys * spoiling.keys.shape[:-1].numel()))
    rows = torch.arange(request.queries, device=request.frame.device).split(height)
    touched = torch.cat([spoiling.spoilt(strip) for strip in rows], -2)
    return torch.where(touched, spoilt.detach(), reading)
