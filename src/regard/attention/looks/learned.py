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


def unique(tensors: list[Tensor]) -> list[Tensor]:
    """Each tensor once: keys may be the queries themselves."""
    return list({id(each): each for each in tensors}.values())


def log_normaliser(scores: Tensor) -> Tensor:
    """ln sum_j exp(s_j); of a row with nothing to read -inf, and its gradient 0."""
    nothing = (scores == -torch.inf).all(-1, keepdim=True)
    scores = torch.where(nothing, 0.0, scores)
    # The gradient is a softmax; that of torch.logsumexp is e^(s - ln Z), which is wrong where
    # ln Z is so large that it is rounded.
    shift = scores.logsumexp(-1, keepdim=True).detach().clamp(max=torch.finfo(scores.dtype).max)
    logs = shift + (scores - shift).exp().sum(-1, keepdim=True).log()
    return torch.where(nothing, -torch.inf, logs).squeeze(-1)
