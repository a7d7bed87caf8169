"""The feed-forward layer with a rectifier, as one operation with its gradient."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from regard.loops.threads import run
from regard.translation.models.transformer.packed import residual_loops as loops
from regard.translation.models.transformer.packed.residual import shares


def feed_forward(
    x: Float[Tensor, "words width"], inner: nn.Linear, outer: nn.Linear
) -> Float[Tensor, "words width"]:
    """W2 max(0, W1 x + b1); b2 is left to whoever adds the result up."""
    output: Tensor = _FeedForward.apply(x, inner.weight, inner.bias, outer.weight)  # type: ignore[no-untyped-call]
    return output


class _FeedForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, inner: Tensor, bias: Tensor, outer: Tensor) -> Tensor:
        hidden = x @ inner.t()
        rows, width = hidden.shape
        flat, added = hidden.view(-1).numpy(), bias.detach().numpy()
        run([partial(loops.rectify, *part, width, flat, added) for part in shares(rows)])
        ctx.save_for_backward(x, hidden, inner, outer)
        return hidden @ outer.t()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        x, hidden, inner, outer = ctx.saved_tensors
        slope = upstream @ outer
        rows, width = slope.shape
        parts = shares(rows)
        sums = slope.new_zeros(len(parts), width)
        made, flat = hidden.view(-1).numpy(), slope.view(-1).numpy()
        run(
            [
                partial(loops.rectified_slope, *part, width, made, flat, sums[worker].numpy())
                for worker, part in enumerate(parts)
            ]
        )
        return slope @ inner, slope.t() @ x, sums.sum(0), upstream.t() @ hidden
