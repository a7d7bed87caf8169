"""Statistics that people train with: the blocks are computed again in the backward pass.

Nothing of a block outlives it, so that memory stays O(queries + keys), forward and backward, for
any score, mask, bias and normaliser; gradients can be differentiated again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from regard.attention.kernels.request import Request
from regard.attention.looks.blocks import entropy_of
from regard.attention.masks import Mask
from regard.attention.masks.documents import Documents
from regard.attention.masks.mask import Both, Either, Given
from regard.attention.masks.packed import Packed
from regard.attention.masks.padding import Padding
from regard.attention.masks.positions import Band
from regard.attention.normalisers import FunctionNormaliser
from regard.attention.scores import Additive, General, SoftCap
from regard.attention.scores.prepare import (
    PreparedAdditive,
    Projected,
    is_additive,
    is_cap,
    is_dots,
    is_plain,
)
from regard.loops.availability import transformed

Part = Callable[[slice, Tensor], Tensor]  # a strip: which of the rows asked for, their positions


@dataclass(frozen=True)
class Answer:
    """An answer in two forms.

    Args:
        whole: all of it, streamed without gradients.
        part: the answer for one strip of rows, in operations that can be differentiated.
        strips: the strips of rows, anew at each call.
        summed: whether the parts are summed, not laid side by side along the last axis.
        told: called after every strip, where the whole is not streamed.
    """

    whole: Callable[[], Tensor]
    part: Part
    strips: Callable[[], Iterator[tuple[slice, Tensor]]]
    summed: bool = False
    told: Callable[[slice], None] = lambda at: None


def answer(asked: Answer, leaves: list[Tensor] | None) -> Tensor:
    """The answer, with its gradient for these leaves; None where they are not known."""
    recorded = transformed()  # transforms follow the operations themselves
    if leaves is not None and not recorded:
        found: Tensor = _Again.apply(asked, *leaves)  # type: ignore[no-untyped-call]
        return found
    again = partial(checkpoint, asked.part, use_reentrant=False, preserve_rng_state=False)
    parts = []
    for at, strip in asked.strips():
        parts.append(asked.part(at, strip) if recorded else again(at, strip))
        asked.told(at)
    return torch.stack(parts).sum(0) if asked.summed else torch.cat(parts, -1)


class _Again(torch.autograd.Function):
    """Forward by the stream; backward a strip at a time, which is computed again and let go."""

    @staticmethod
    def forward(ctx: Any, asked: Answer, *leaves: Tensor) -> Tensor:
        ctx.asked = asked
        ctx.save_for_backward(*leaves)
        return asked.whole()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        asked, (gradient,), again = ctx.asked, gradients, torch.is_grad_enabled()
        wanted = [
            leaf for leaf, n in zip(ctx.saved_tensors, ctx.needs_input_grad[1:], strict=True) if n
        ]
        totals = [torch.zeros_like(leaf) for leaf in wanted]
        for at, strip in asked.strips():
            with torch.enable_grad():
                part = asked.part(at, strip)
            if not part.requires_grad:
                continue
            share = gradient if asked.summed else gradient[..., at]
            found = torch.autograd.grad(part, wanted, share, allow_unused=True, create_graph=again)
            for i, own in enumerate(found):
                if own is not None:
                    totals[i] = totals[i] + own if again else totals[i].add_(own)
        each = iter(totals)
        return None, *(next(each) if n else None for n in ctx.needs_input_grad[1:])


def leaves_of(request: Request) -> list[Tensor] | None:
    """The tensors that the weights depend on; None where a caller's function may hide some."""
    parameters = _parameters(request.score)
    if parameters is None or isinstance(request.normaliser, FunctionNormaliser):
        return None
    tensors = [request.query, request.key, request.bias, *parameters]
    return unique([each for each in tensors if each is not None])


def tensors_of(mask: Mask | Tensor | None) -> list[Tensor] | None:
    """The tensors that a mask depends on; None where a caller's function may hide some."""
    match mask:
        case None | Band() | Packed():
            return []
        case Tensor():
            return [mask]
        case Given():
            return [mask.tensor]
        case Padding():
            return [mask.lengths]
        case Documents():
            return [mask.query_ids, mask.key_ids]
        case Both() | Either():
            left, right = tensors_of(mask.left), tensors_of(mask.right)
            return None if left is None or right is None else left + right
    return None


def unique(tensors: list[Tensor]) -> list[Tensor]:
    """Each tensor once: keys may be the queries themselves."""
    return list({id(each): each for each in tensors}.values())


def _parameters(score: object) -> list[Tensor] | None:
    if type(score) in (General, Additive) and (is_dots(score) or is_additive(score)):
        return list(score.parameters())  # type: ignore[attr-defined]
    if isinstance(score, PreparedAdditive):
        left = score.score
        if not isinstance(left, Projected):
            return _parameters(left)
        return [left.weight] if type(left.score) is Additive else None
    if type(score) is SoftCap and is_cap(score):
        return _parameters(score.score)
    return [] if is_plain(score) else None


def entropy(weights: Callable[[Tensor], Tensor]) -> Part:
    return lambda _, rows: entropy_of(weights(rows))


def log_normaliser(scores: Callable[[Tensor], Tensor]) -> Part:
    """ln sum_j exp(s_j); of a row with nothing to read -inf, and its gradient 0."""

    def part(_: slice, rows: Tensor) -> Tensor:
        own = scores(rows)
        nothing = (own == -torch.inf).all(-1, keepdim=True)
        own = torch.where(nothing, 0.0, own)
        # The gradient is a softmax; that of torch.logsumexp is e^(s - ln Z), which is wrong where
        # ln Z is so large that it is rounded.
        shift = own.logsumexp(-1, keepdim=True).detach().clamp(max=torch.finfo(own.dtype).max)
        logs = shift + (own - shift).exp().sum(-1, keepdim=True).log()
        return torch.where(nothing, -torch.inf, logs).squeeze(-1)

    return part


def received(weights: Callable[[Tensor], Tensor], shares: Tensor | None) -> Part:
    """sum_i w_i p_ij over rows; `shares` are the w of the rows asked for."""

    def part(at: slice, rows: Tensor) -> Tensor:
        own = weights(rows)
        return own.sum(-2) if shares is None else (shares[..., at].unsqueeze(-1) * own).sum(-2)

    return part
