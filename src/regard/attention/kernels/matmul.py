"""Two matrix products and a softmax, for short rows on a processor.

On a CPU, torch's fused attention is for long rows: with a few dozen queries and keys, in half
precision above all, its overhead for each block costs more than the matrix it saves.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from regard.attention.dropout import drop
from regard.attention.kernels.dots import additive, factors, refuse
from regard.attention.kernels.request import Request
from regard.attention.products import blend, dots, product_dtype


class Matmul:
    name = "matmul"

    def supports(self, request: Request, value: Tensor) -> str | None:
        return refuse(request, value)

    def attend(self, request: Request, value: Tensor) -> Tensor:
        scores = _scores(request)
        shut, nothing = additive(request, scores.dtype)
        weights = torch.softmax(scores if shut is None else scores + shut, dim=-1)
        if request.dropout:
            weights = drop(weights, request.dropout)
        reading = blend(weights.to(value.dtype), value)
        return reading if nothing is None else reading.masked_fill(nothing, 0.0)


def _scores(request: Request) -> Tensor:
    """The scores over the temperature; in float32 instead of float16, which ends at 65,504."""
    query, key = request.query, request.key
    if product_dtype(query) != torch.float16:
        return _scaled_dots(*factors(request))
    with torch.autocast(query.device.type, enabled=False):
        return _scaled_dots(*factors(replace(request, query=query.float(), key=key.float())))


def _scaled_dots(query: Tensor, key: Tensor, scale: float) -> Tensor:
    """scale * query . key, the scale within the product where the batch axes are the same."""
    batch = query.shape[:-2]
    if batch != key.shape[:-2]:
        return dots(query * scale, key)
    rows = query.reshape(-1, *query.shape[-2:])
    columns = key.reshape(-1, *key.shape[-2:])
    scores = torch.baddbmm(query.new_empty(()), rows, columns.mT, beta=0, alpha=scale)
    return scores.view(*batch, query.shape[-2], key.shape[-2])
