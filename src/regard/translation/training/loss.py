"""The training loss: label-smoothed cross-entropy, with its gradient in the same pass over the logits."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.translation.models.protocol import TranslationModel
from regard.translation.text.batches import Batch
from regard.translation.training.guiding import Guide

# So few rows at a time that their float32 logits stay in a processor's cache.
_ROWS = 64


class _SmoothedCrossEntropy(torch.autograd.Function):
    """Computes the gradient together with the loss, `_ROWS` rows at a time."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, smoothing: float) -> Tensor:
        vocabulary = logits.shape[-1]
        needed = ctx.needs_input_grad[0]
        gradient = torch.empty_like(logits) if needed else logits
        total = torch.zeros((), dtype=torch.float64, device=logits.device)
        for start in range(0, len(logits), _ROWS):
            rows = slice(start, start + _ROWS)
            target = targets[rows, None]
            x = logits[rows].float()
            x = x - x.amax(-1, keepdim=True)
            spread = smoothing / vocabulary
            kept = (1 - smoothing) * x.gather(-1, target).squeeze(-1) + spread * x.sum(-1)
            exponential = x.exp_()
            normaliser = exponential.sum(-1)
            total += (normaliser.log() - kept).sum()
            if needed:
                exponential.div_(normaliser[:, None]).sub_(spread)
                exponential.scatter_add_(
                    -1, target, torch.full_like(target, smoothing - 1, dtype=torch.float32)
                )
                gradient[rows] = exponential
        if needed:
            ctx.save_for_backward(gradient)
        return total.float()

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * upstream.to(gradient.dtype), None, None


def smoothed_cross_entropy(
    logits: Float[Tensor, "tokens vocabulary"],
    targets: Int[Tensor, " tokens"],
    smoothing: float = 0.0,
) -> Float[Tensor, ""]:
    """The summed cross-entropy between a softmax over `logits` and smoothed targets, in nats.

    loss = - sum_t [(1 - s) log p(y_t) + s / V sum_v log p(v)]   (Szegedy et al. 2016, section 7)
    """
    loss: Tensor = _SmoothedCrossEntropy.apply(logits, targets, smoothing)  # type: ignore[no-untyped-call]
    return loss


class Objective(nn.Module):
    """The loss of a model on a batch, in nats, summed over its target tokens.

    Args:
        model: the model that is trained.
        smoothing: label smoothing of the targets.
        guide: adds a weighted loss on the attention of one head, if given.
    """

    def __init__(
        self, model: TranslationModel, smoothing: float, guide: Guide | None = None
    ) -> None:
        super().__init__()
        self.model = model
        self.smoothing = smoothing
        self.guide = guide

    def forward(self, batch: Batch) -> Float[Tensor, ""]:
        read = batch.source, batch.source_lengths, batch.target_in
        place = torch.arange(batch.target_out.shape[1], device=batch.target_out.device)
        real = place < batch.target_lengths[:, None]
        guided: Tensor | float = 0.0
        if self.guide is None:
            hidden = self.model.hidden(*read)
        else:
            hidden, looks = self.model.watched(*read, self.guide.look)
            guided = self.guide.section.weight * self.guide.loss(looks[self.guide.look], batch)
        logits = self.model.logits(hidden[real])
        return smoothed_cross_entropy(logits, batch.target_out[real], self.smoothing) + guided
