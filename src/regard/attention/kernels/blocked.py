"""The equations in blocks of queries: any combination of parts, in memory that grows with lengths.

Of each block only its inputs are kept; its weights are computed again when gradients are asked for.
This is torch's checkpointing and no autograd function of our own: operations of the caller's are
recorded anew, so that what a score, mask or normaliser has closed over gets its gradient as well,
exactly, and can be differentiated again; random numbers are drawn anew from the same state.
"""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from regard.attention.kernels.reference import normalise, read, widen
from regard.attention.kernels.request import Request
from regard.attention.scores import Additive, DotLike, Score, SoftCap, prepare
from regard.attention.scores.prepare import PreparedAdditive

BLOCK = 1 << 20  # numbers of a block
LARGE = 1 << 24  # numbers of the whole from which blocks are worth computing twice


class Blocked:
    name = "blocked"

    def supports(self, request: Request, value: Tensor) -> str | None:
        return None

    def attend(self, request: Request, value: Tensor) -> Tensor:
        score, key = prepare(request.score, widen(request.key))
        height = max(1, BLOCK // max(1, width(request)))
        query, bias = request.query, request.bias
        queries = query.split(height, -2)
        biases = (
            bias.split(height, -2)
            if bias is not None and bias.shape[-2] > 1
            else (bias,) * len(queries)
        )

        def block(
            query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, at: int
        ) -> Tensor:
            rows = torch.arange(at, at + query.shape[-2], device=query.device)
            weights = normalise(request, score(widen(query), key), bias, rows)
            return read(request, weights, value)

        keep = not _can_recompute()
        readings = [
            block(part, key, value, plus, i * height)
            if keep
            else checkpoint(block, part, key, value, plus, i * height, use_reentrant=False)
            for i, (part, plus) in enumerate(zip(queries, biases, strict=True))
        ]
        return readings[0] if len(readings) == 1 else torch.cat(readings, -2)


def _can_recompute() -> bool:
    """Whether autograd lets tensors be saved as a recipe: torch.func's transforms do not."""
    return torch._C._autograd._saved_tensors_hooks_is_enabled()


def width(request: Request) -> int:
    """The numbers that one query of every batch entry takes: scores, or the layer before them."""
    return prod(request.batch()) * request.keys * _channels(request.score, request)


def _channels(score: Score, request: Request) -> int:
    """The numbers a score takes for a pair. Of the caller's own we cannot know: as for Additive."""
    match score:
        case SoftCap():
            return _channels(score.score, request)
        case Additive():
            return score.d_hidden
        case PreparedAdditive():
            return score.score.d_hidden
        case DotLike():
            return 1
    return max(request.query.shape[-1], request.key.shape[-1])


def is_large(request: Request) -> bool:
    """Whether the whole takes more than a block is worth: LARGE numbers."""
    return request.queries * width(request) > LARGE
