"""From a request to its reading, whichever kernel serves it."""

import torch
from torch import Tensor

from regard.attention.kernels.choose import MATMUL, SDPA, Kernel, choose
from regard.attention.kernels.narrowing import narrowed
from regard.attention.kernels.request import Request
from regard.attention.kernels.zeroed import are_finite, zeroed

ROOM = 1 << 22  # booleans held at a time


def serve(request: Request, value: Tensor) -> Tensor:
    """The reading. Keys and values that a query may not read have no effect, even if they are NaN."""
    if request.mask is not None:
        request, value = narrowed(request, value)
    kernel = choose(request, value)
    if kernel is not SDPA and kernel is not MATMUL:
        request = request.written()
    if not request.is_masked:
        return kernel.attend(request, value)
    if not value.is_cpu or request.is_traced:
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
