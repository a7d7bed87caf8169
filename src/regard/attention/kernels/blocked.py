"""The equations in blocks of queries: any combination of parts, in memory that grows with lengths."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from regard.attention.kernels.recomputing import Blocks, Recomputed, closed_over, write
from regard.attention.kernels.reference import normalise, read, widen
from regard.attention.kernels.request import Request
from regard.attention.scores import Additive, DotLike, Score, SoftCap, prepare
from regard.attention.scores.prepare import PreparedAdditive

BLOCK = 1 << 22  # numbers of a block
LARGE = 1 << 26  # numbers of the whole from which blocks are worth computing twice


class Blocked:
    name = "blocked"

    def supports(self, request: Request, value: Tensor) -> str | None:
        return None

    def attend(self, request: Request, value: Tensor) -> Tensor:
        score, key = prepare(request.score, widen(request.key))

        def block(
            query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, at: int
        ) -> Tensor:
            rows = torch.arange(at, at + query.shape[-2], device=query.device)
            return read(request, normalise(request, score(widen(query), key), bias, rows), value)

        height = max(1, BLOCK // max(1, width(request)))
        blocks = Blocks(block, height, request.query, key, value, request.bias)
        if _transformed():
            return blocks.whole()
        if not torch.is_grad_enabled():
            return write(blocks)
        leaves = closed_over(blocks)
        if leaves is None:
            return torch.cat(
                [checkpoint(blocks.at, span, use_reentrant=False) for span in blocks.spans()], -2
            )
        reading: Tensor = Recomputed.apply(  # type: ignore[no-untyped-call]
            block, height, request.query, key, value, request.bias, *leaves
        )
        return reading


def _transformed() -> bool:
    """Whether a transform or compiler sees the blocks: it plans itself what is kept."""
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()


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
            return 4  # scores, weights, and what leads from one to the other
    return max(request.query.shape[-1], request.key.shape[-1])


def is_large(request: Request) -> bool:
    """Whether the whole takes more than a block is worth: LARGE numbers."""
    return request.queries * width(request) > LARGE
