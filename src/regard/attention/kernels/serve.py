"""From a request to its reading, whichever kernel serves it."""

import torch
from torch import Tensor

from regard.attention.kernels.choose import Kernel, choose
from regard.attention.kernels.narrowing import narrowed
from regard.attention.kernels.request import Request
from regard.attention.kernels.zeroed import are_finite, has_nan, zeroed

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
