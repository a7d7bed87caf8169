"""The output layer and its loss together: the logits of all words are never held at once.

With logits z = W h + b of some words, p = softmax(z) and q the smoothed targets:
    loss = - q . log p,   dz = p - q,   dh = dz W,   dW = dz^T h,   db = sum dz
Some words are worked on at a time; what is left of them is the gradient.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.loops.threads import run, split
from regard.translation.training import softmax_loops

# Logits held at a time: some megabytes, which a processor's cache can keep.
_HELD = 1 << 20


def projected_cross_entropy(
    hidden: Float[Tensor, "words width"],
    weight: Float[Tensor, "vocabulary width"],
    bias: Float[Tensor, " vocabulary"] | None,
    targets: Int[Tensor, " words"],
    smoothing: float = 0.0,
) -> Float[Tensor, ""]:
    """The smoothed cross-entropy, summed in nats, of the logits that an output layer makes of hidden states.

    That of `regard.translation.training.loss.smoothed_cross_entropy`, with no more than some words' logits in memory.

    Example:
        >>> projected_cross_entropy(torch.zeros(3, 4), torch.ones(8, 4), None, torch.tensor([0, 1, 2]))
        tensor(6.2383)

    Raises:
        IndexError: a target is no word of the vocabulary.
    """
    if len(targets) and not 0 <= int(targets.min()) <= int(targets.max()) < len(weight):
        raise IndexError(
            f"targets from {int(targets.min())} to {int(targets.max())}, the output layer has {len(weight)} words"
        )
    loss: Tensor = _Projected.apply(hidden, weight, bias, targets, smoothing)  # type: ignore[no-untyped-call]
    return loss


class _Projected(torch.autograd.Function):
    """The gradients are worked out with the loss, while the logits are at hand."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        smoothing: float,
    ) -> Tensor:
        words, vocabulary = len(hidden), len(weight)
        height = max(16, _HELD // vocabulary)
        room = hidden.new_empty(min(height, max(1, words)), vocabulary)
        losses = np.zeros(words, np.float64)
        for_hidden, for_weight = torch.empty_like(hidden), torch.zeros_like(weight)
        for_bias = None if bias is None else torch.zeros_like(bias)
        for start in range(0, words, height):
            rows = slice(start, min(start + height, words))
            logits = room[: rows.stop - start]
            torch.mm(hidden[rows], weight.t(), out=logits)
            if bias is not None:
                logits += bias
            _to_gradients(logits, targets[rows], smoothing, losses[rows])
            torch.mm(logits, weight, out=for_hidden[rows])
            for_weight.addmm_(logits.t(), hidden[rows])
            if for_bias is not None:
                for_bias += logits.sum(0)
        ctx.save_for_backward(for_hidden, for_weight, for_bias)
        return torch.tensor(losses.sum(), dtype=hidden.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        gradients = [None if g is None else g * upstream for g in ctx.saved_tensors]
        return *gradients, None, None


def _to_gradients(logits: Tensor, targets: Tensor, smoothing: float, losses: Any) -> None:
    vocabulary = logits.shape[1]
    given = (logits.view(-1).numpy(), vocabulary, targets.numpy(), smoothing, losses)
    parts = split(len(logits), torch.get_num_threads())
    run([partial(softmax_loops.to_gradients, *part, *given) for part in parts])
