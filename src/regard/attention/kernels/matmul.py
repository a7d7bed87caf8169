"""Two matrix products and a softmax, for short rows on a processor.

On a CPU, up to about 128 queries and keys, torch's fused attention costs more than the matrix it saves.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.kernels.dots import additive, factors, refuse
from regard.attention.kernels.request import Request
from regard.attention.scores.products import blend, dots


class Matmul:
    name = "matmul"

    def supports(self, request: Request, value: Tensor) -> str | None:
        return refuse(request, value)

    def attend(self, request: Request, value: Tensor) -> Tensor:
        query, key, scale = factors(request)
        scores = _scaled_dots(query, key, scale)
        shut, nothing = additive(request, scores.dtype)
        if shut is not None:
            scores = scores + shut
        weights = torch.softmax(scores, dim=-1)
        if nothing is not None:
            weights = weights.masked_fill(nothing, 0.0)
        if request.dropout:
            weights = F.dropout(weights, request.dropout)
        return blend(weights, value)


def _scaled_dots(query: Tensor, key: Tensor, scale: float) -> Tensor:
    return dots(query * scale, key)
