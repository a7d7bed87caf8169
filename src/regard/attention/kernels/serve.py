"""From a request to its reading, whichever kernel serves it."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.kernels.choose import MATMUL, SDPA, SHORT, choose, pinned
from regard.attention.kernels.kernel import Kernel
from regard.attention.kernels.loops import in_forward_mode, transformed
from regard.attention.kernels.request import Request
from regard.attention.kernels.sentences import one_by_one, packing
from regard.attention.precision import HALVES

ROOM = 1 << 22  # booleans held at a time


def serve(request: Request, value: Tensor) -> Tensor:
    """The reading. What a query may not read has no part in it, whatever it holds."""
    kernel = choose(request, value)
    if request.mask is None and request.bias is None:
        return kernel.attend(request, value)
    if kernel is SDPA or kernel is MATMUL:
        sentences = packing(request)
        if sentences is not None:
            return one_by_one(sentences, request, value, serve)
    if not value.is_cpu or transformed():
        return kernel.attend(request, value)
    reading = kernel.attend(request, value)
    # A key or query that no reading shows may still spoil gradients. Where none are wanted the keys
    # of a decoder's single query are not summed: they are as many numbers as its scores take.
    whole = _are_finite(reading) and (
        not reading.requires_grad or _are_finite(request.key, request.query)
    )
    return reading if whole else _apart(kernel, request, value, reading)


def at_once(query: Tensor, key: Tensor, value: Tensor) -> Tensor | None:
    """A scaled dot product and nothing else, without a second look; None where one is needed.

    What may be wrong with the arguments, and where this is not the fastest, `serve` knows.
    """
    if not (isinstance(query, Tensor) and isinstance(key, Tensor) and isinstance(value, Tensor)):
        return None
    batch = query.shape[:-2]
    if len(batch) != 2 or key.shape[:-2] != batch or value.shape[:-2] != batch or pinned():
        return None
    if in_forward_mode():
        return None
    fits = key.shape[-1] == query.shape[-1] and key.shape[-2] == value.shape[-2]
    same = query.dtype == key.dtype == value.dtype and query.is_floating_point()
    if not (fits and same and query.numel() and key.numel() and value.numel()):
        return None
    if query.is_cpu and min(query.shape[-2], key.shape[-2]) <= SHORT and torch.is_grad_enabled():
        return None
    return F.scaled_dot_product_attention(query, key, value)


def _are_finite(*tensors: Tensor) -> bool:
    """Whether all numbers are: one that is not makes the sum none either."""
    wide = (torch.float32 if each.dtype in HALVES else None for each in tensors)
    total = sum(t.detach().sum(dtype=w).item() for t, w in zip(tensors, wide, strict=True))
    return total - total == 0.0


def _apart(kernel: Kernel, request: Request, value: Tensor, spoilt: Tensor) -> Tensor:
    """The reading where something holds NaN or infinity: 0 times those is no 0.

    Such keys and values are read as zeros by the queries that may not read them, and such queries
    ask with zeros where they may read nothing. The other rows that these touch keep what the
    numbers came to, without gradients.
    """
    broken = ~(request.key.isfinite().all(-1) & value.isfinite().all(-1))
    lost = ~request.query.isfinite().all(-1)
    if not (broken.any() or lost.any()):
        return spoilt
    query, key = request.query, request.key
    clean = replace(
        request,
        query=query.masked_fill(lost.unsqueeze(-1), 0.0),
        key=key.masked_fill(broken.unsqueeze(-1), 0.0),
    )
    reading = kernel.attend(clean, value.masked_fill(broken.unsqueeze(-1), 0.0))
    return torch.where(_touched(request, broken, lost), spoilt.detach(), reading)


def _touched(request: Request, broken: Tensor, lost: Tensor) -> Tensor:
    """Which queries may read one of these keys, or are lost and may read any: (*batch, queries, 1)."""
    height = max(1, ROOM // max(1, request.keys * broken.shape[:-1].numel()))
    touched = []
    for rows in torch.arange(request.queries).split(height):
        readable = request.readable(rows)
        reads = broken.unsqueeze(-2) | lost.index_select(-1, rows).unsqueeze(-1)
        reads = reads if readable is None else readable & reads
        touched.append(reads.any(-1, keepdim=True).expand(*reads.shape[:-2], len(rows), 1))
    return torch.cat(touched, -2)
