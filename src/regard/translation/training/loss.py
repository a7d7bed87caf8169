"""The training loss: label-smoothed cross-entropy, and the loss on word links if there is a guide."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

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
        logits, targets = self.model.logits(hidden[real]).float(), batch.target_out[real]
        loss = F.cross_entropy(logits, targets, reduction="sum", label_smoothing=self.smoothing)
        if not self.consistency:
            return loss + guided
        return (loss + guided + self.consistency * disagreement(*logits.chunk(2))) / 2


def disagreement(
    ours: Float[Tensor, "words vocabulary"], theirs: Float[Tensor, "words vocabulary"]
) -> Float[Tensor, ""]:
    """The mean of KL(p || q) and KL(q || p) of two predictions' logits, in nats, summed over the words.

    The two sums together are ``sum_v (p_v - q_v) (log p_v - log q_v) / 2``.
    """
    p, q = ours.log_softmax(-1), theirs.log_softmax(-1)
    return ((p.exp() - q.exp()) * (p - q)).sum() / 2
