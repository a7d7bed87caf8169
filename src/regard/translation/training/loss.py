"""The training loss: label-smoothed cross-entropy, and the loss on word links if there is a guide."""

from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from regard.translation.models.protocol import TranslationModel, Watched
from regard.translation.text.batches import Batch
from regard.translation.training.guiding import Guide


class Objective(nn.Module):
    """The loss of a model on a batch, in nats, summed over its target tokens.

    loss = - sum_t [(1 - s) log p(y_t) + s / V sum_v log p(v)]   (Szegedy et al. 2016, section 7)

    With a weight of `consistency`, the batch is read twice, so that two dropout masks give p and q. The loss is then
    the mean of both losses, and half the weight times the mean of KL(p || q) and KL(q || p): half the loss of
    R-Drop (Wu et al. 2021, arXiv 2106.14448, equation 4), which keeps its weight and the scale of one reading.
    """

    def __init__(
        self,
        model: TranslationModel,
        smoothing: float,
        guide: Guide | None = None,
        consistency: float = 0.0,
    ) -> None:
        super().__init__()
        self.model = model
        self.smoothing = smoothing
        self.guide = guide
        self.consistency = consistency

    def forward(self, batch: Batch) -> Float[Tensor, ""]:
        if self.consistency:
            batch = batch.twice()
        read = batch.source, batch.source_lengths, batch.target_in
        place = torch.arange(batch.target_out.shape[1], device=batch.target_out.device)
        real = place < batch.target_lengths[:, None]
        watched = None if self.guide is None else Watched(self.guide.look)
        hidden = self.model.hidden(*read, watched)
        guided: Tensor | float = 0.0
        if self.guide is not None and watched is not None:
            look = watched.looks[self.guide.look]
            guided = self.guide.section.weight * self.guide.loss(look, batch)
        logits = self.model.logits(hidden[real])
        loss = cross_entropy(logits, batch.target_out[real], self.smoothing)
        if not self.consistency:
            return loss + guided
        return (loss + guided + self.consistency * disagreement(*logits.float().chunk(2))) / 2


def cross_entropy(
    logits: Float[Tensor, "words vocabulary"], targets: Int64[Tensor, "words"], smoothing: float
) -> Float[Tensor, ""]:
    """The cross-entropy with label smoothing, in float32 nats, summed over the words.

    It computes what `torch.nn.functional.cross_entropy` does, and again in the backward pass: nothing else of the size
    of the logits is kept between the two. A processor computes a few words at a time, whose logits stay in its cache.
    The gradient cannot be differentiated.
    """
    loss: Tensor = _CrossEntropy.apply(logits, targets, smoothing)  # type: ignore[no-untyped-call]
    return loss


# Logits of the words that a processor computes together. In float32 they take 4 MB.
_TOGETHER = 2**20


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, smoothing: float) -> Tensor:
        rows = max(1, _TOGETHER // logits.shape[1] if logits.is_cpu else len(logits))
        loss, normalisers = logits.new_zeros((), dtype=torch.float32), []
        for some, right in zip(logits.split(rows), targets[:, None].split(rows), strict=True):
            z = some.float()
            normaliser = z.logsumexp(-1, keepdim=True)
            chosen = (1 - smoothing) * z.gather(1, right) + smoothing * z.mean(-1, keepdim=True)
            loss += (normaliser - chosen).sum()
            normalisers.append(normaliser)
        ctx.save_for_backward(logits, targets, torch.cat(normalisers))
        ctx.rows, ctx.smoothing = rows, smoothing
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        logits, targets, normalisers = ctx.saved_tensors
        found = torch.empty_like(logits)
        given = (logits, targets[:, None], normalisers, found)
        for some, right, normaliser, out in zip(
            *(each.split(ctx.rows) for each in given), strict=True
        ):
            p = (some.float() - normaliser).exp_()  # the gradient is p - (1 - s) [v = y] - s / V
            p.scatter_(1, right, p.gather(1, right) - (1 - ctx.smoothing))
            torch.mul(p.sub_(ctx.smoothing / logits.shape[1]), gradient, out=out)
        return found, None, None


def disagreement(
    ours: Float[Tensor, "words vocabulary"], theirs: Float[Tensor, "words vocabulary"]
) -> Float[Tensor, ""]:
    """The mean of KL(p || q) and KL(q || p) of two predictions' logits, in nats, summed over the words.

    The two sums together are ``sum_v (p_v - q_v) (log p_v - log q_v) / 2``.
    """
    p, q = ours.log_softmax(-1), theirs.log_softmax(-1)
    return ((p.exp() - q.exp()) * (p - q)).sum() / 2
