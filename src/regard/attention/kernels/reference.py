"""The equations as they stand: any combination of parts, and what the other kernels answer to.

weights = normalise(mask(score(query, key) + bias)); reading = weights x value.
Half precisions are computed in float32.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.attention.kernels.dropout import drop
from regard.attention.kernels.request import Request
from regard.attention.masks.mask import pick
from regard.attention.scores.products import blend
from regard.attention.shapes import ShapeError

HALVES = (torch.float16, torch.bfloat16)


def widen(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in HALVES else tensor


def weigh(request: Request, rows: Tensor | None = None) -> Tensor:
    """The weights of all queries, or of those at these rows, over every key."""
    query, bias = widen(request.query), request.bias
    if rows is not None:
        query = query.index_select(-2, rows)
    scores = request.score(query, widen(request.key))
    if scores.shape[-2:] != (query.shape[-2], request.keys):
        raise ShapeError(
            f"the score gave shape {list(scores.shape)}:"
            f" it must give [..., {query.shape[-2]}, {request.keys}]"
        )
    if bias is not None:
        scores = scores + (bias if rows is None else pick(bias, -2, rows)).to(scores.dtype)
    return request.normaliser(scores, request.readable(rows))


class Reference:
    name = "reference"

    def supports(self, request: Request, value: Tensor) -> str | None:
        return None

    def attend(self, request: Request, value: Tensor) -> Tensor:
        weights = weigh(request)
        if request.dropout:
            weights = drop(weights, request.dropout)
        wide = widen(value)
        reading = blend(weights.to(wide.dtype), wide)
        return reading if wide is value else reading.to(value.dtype)
