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
    """

    def __init__(
        self, model: TranslationModel, smoothing: float, guide: Guide | None = None
    ) -> None:
        super().__init__()
        self.model, self.smoothing, self.guide = model, smoothing, guide

    def forward(self, batch: Batch) -> Float[Tensor, ""]:
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
        return loss + guided
