"""Two matrix products and a softmax, for short rows on a processor.

On a CPU, torch's fused attention is for long rows: with a few dozen queries and keys, in half
precision above all, its overhead for each block costs more than the matrix it saves.
"""

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
    if product_dtype(request.query) != torch.float16:
        query, key, scale = factors(request)
        return dots(query * scale, key)
    wide = replace(request, query=request.query.float(), key=request.key.float())
    with torch.autocast(request.query.device.type, enabled=False):
        query, key, scale = factors(wide)
        return dots(query * scale, key)
