"""Statistics that people train with: the blocks are computed again in the backward pass.

Nothing of a block outlives it, so that memory stays O(queries + keys), forward and backward, for
any score, mask, bias and normaliser; gradients can be differentiated again.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

Part = Callable[[Sequence[Tensor], slice], Tensor]  # of the tensors and a strip of rows


class Recomputed(torch.autograd.Function):
    """Forward without gradients; backward a strip at a time, which is computed again and let go.

    Gradients are taken for views of the tensors, as one tensor may be computed from another.
    """

    @staticmethod
    def forward(
        ctx: Any,
        part: Part,
        whole: Callable[[], Tensor],
        strips: Sequence[slice],
        summed: bool,
        *tensors: Tensor,
    ) -> Tensor:
        ctx.part, ctx.strips, ctx.summed = part, strips, summed
        ctx.save_for_backward(*tensors)
        return whole()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,), again, needed = gradients, torch.is_grad_enabled(), ctx.needs_input_grad[4:]
        with torch.enable_grad():
            views = [tensor.view_as(tensor) for tensor in ctx.saved_tensors]
        wanted = [view for view, need in zip(views, needed, strict=True) if need]
        totals = [torch.zeros_like(view) for view in wanted]
        for at in ctx.strips:
            with torch.enable_grad():
                part = ctx.part(views, at)
            if not part.requires_grad:
                continue
            share = gradient if ctx.summed else gradient[..., at]
            found = torch.autograd.grad(part, wanted, share, allow_unused=True, create_graph=again)
            for i, own in enumerate(found):
                if own is not None:
                    totals[i] = totals[i] + own if again else totals[i].add_(own)
        each = iter(totals)
        return None, None, None, None, *(next(each) if need else None for need in needed)


def log_normaliser(scores: Tensor) -> Tensor:
    """ln sum_j exp(s_j); of a row with nothing to read -inf, and its gradient 0."""
    nothing = (scores == -torch.inf).all(-1, keepdim=True)
    scores = torch.where(nothing, 0.0, scores)
    # The gradient is a softmax; that of torch.logsumexp is e^(s - ln Z), which is wrong where
    # ln Z is so large that it is rounded.
    shift = scores.logsumexp(-1, keepdim=True).detach().clamp(max=torch.finfo(scores.dtype).max)
    logs = shift + (scores - shift).exp().sum(-1, keepdim=True).log()
    return torch.where(nothing, -torch.inf, logs).squeeze(-1)
