"""Statistics that people train with: the blocks are computed again in the backward pass.

Nothing of a block outlives it, so that memory stays O(queries + keys), forward and backward, for
any score, mask, bias and normaliser; gradients can be differentiated again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from regard.loops.availability import transformed

Part = Callable[[slice, Tensor], Tensor]  # of a strip: which of the rows asked for, their positions
Strips = list[tuple[slice, Tensor]]


def answer(
    part: Part,
    whole: Callable[[], Tensor],
    strips: Strips,
    leaves: list[Tensor] | None,
    *,
    summed: bool,
    told: Callable[[slice], None],
) -> Tensor:
    """An answer with its gradient.

    Args:
        part: the answer for one strip of rows, in operations that can be differentiated.
        whole: all of it, streamed without gradients.
        strips: the strips of rows.
        leaves: the tensors that get a gradient; None where they are not known.
        summed: whether the parts are summed, not laid side by side along the last axis.
        told: called after every strip, where the whole is not streamed.
    """
    recorded = transformed()  # transforms follow the operations themselves
    if leaves is not None and not recorded:
        found: Tensor = _Again.apply(part, whole, strips, summed, *leaves)  # type: ignore[no-untyped-call]
        return found
    again = partial(checkpoint, part, use_reentrant=False, preserve_rng_state=False)
    parts = []
    for at, strip in strips:
        parts.append(part(at, strip) if recorded else again(at, strip))
        told(at)
    return torch.stack(parts).sum(0) if summed else torch.cat(parts, -1)


class _Again(torch.autograd.Function):
    """Forward by the stream; backward a strip at a time, which is computed again and let go."""

    @staticmethod
    def forward(
        ctx: Any,
        part: Part,
        whole: Callable[[], Tensor],
        strips: Strips,
        summed: bool,
        *leaves: Tensor,
    ) -> Tensor:
        ctx.part, ctx.strips, ctx.summed = part, strips, summed
        ctx.save_for_backward(*leaves)
        return whole()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,), again, needed = gradients, torch.is_grad_enabled(), ctx.needs_input_grad[4:]
        wanted = [leaf for leaf, n in zip(ctx.saved_tensors, needed, strict=True) if n]
        totals = [torch.zeros_like(leaf) for leaf in wanted]
        for at, strip in ctx.strips:
            with torch.enable_grad():
                part = ctx.part(at, strip)
            if not part.requires_grad:
                continue
            share = gradient if ctx.summed else gradient[..., at]
            found = torch.autograd.grad(part, wanted, share, allow_unused=True, create_graph=again)
            for i, own in enumerate(found):
                if own is not None:
                    totals[i] = totals[i] + own if again else totals[i].add_(own)
        each = iter(totals)
        return None, None, None, None, *(next(each) if n else None for n in needed)


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
