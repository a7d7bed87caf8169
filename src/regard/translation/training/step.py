"""One training step: the loss, its gradients, summed over all processes, clipped and applied to the weights."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import TrainingError, memory_named
from regard.translation.models.protocol import TranslationModel, Watched
from regard.translation.settings.training import TrainingSettings
from regard.translation.text.batches import Batch
from regard.translation.training.epochs import Part
from regard.translation.training.guiding import Guide
from regard.translation.training.processes import Processes


class Update(NamedTuple):
    """A step that was made: its loss in nats a target token, and the gradient norm before clipping."""

    loss: float
    norm: float
    rate: float
    tokens: int


@contextmanager
def products(precision: str) -> Iterator[None]:
    """Allow rounding in products of float32 if `precision` is `medium`, and only then, forward and backward."""
    precision_before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium" if precision == "medium" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(precision_before)


@contextmanager
def arithmetic(precision: str, device: torch.device) -> Iterator[None]:
    """Compute in `float32`, `medium` (float32 whose products may round to bfloat16) or `bfloat16` autocast.

    For the forward pass and the optimiser: the backward pass then uses the same types, and needs `products` only.
    """
    half = torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bfloat16")
    with products(precision), half:
        yield


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
        self.model, self.smoothing, self.guide = model, smoothing, guide
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


class Learner:
    """A model, its loss and its optimiser. Each process holds all weights; gradients are summed over processes."""

    def __init__(
        self,
        model: TranslationModel,
        optimiser: torch.optim.Optimizer,
        settings: TrainingSettings,
        processes: Processes,
        guide: Guide | None = None,
    ) -> None:
        self.model, self.optimiser = model, optimiser
        self.settings, self.processes = settings, processes
        self.objective = Objective(model, settings.label_smoothing, guide, settings.consistency)

    def step(self, batches: list[Part], number: int, rate: float, precision: str) -> Update:
        """Update the weights once, by this process's parts, one at least, of some batches.

        `number` is the step, counted from 1; `precision` is one of `arithmetic`.

        Raises:
            TrainingError: the loss or a gradient is not finite, or memory ran out.
        """
        tokens = sum(batch_part.target_tokens for batch_part in batches)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        loss = self.processes.total(self.gradients(batches, tokens, number, precision))
        with memory_named(f"at step {number}, in the optimiser", "the sizes of the model"):
            norm = self.sum_and_clip()
            if not (math.isfinite(loss) and math.isfinite(norm)):
                raise TrainingError(
                    f"step {number}: loss {loss}, gradient norm {norm}: training cannot go on; the batch holds "
                    f"{sum(len(batch.rows) for batch in batches)} sentence pairs (rows {_row_list(batches[0].rows)}). "
                    "Checkpoints are untouched: lower training.learning_rate or set training.clip"
                )
            with arithmetic(precision, self.processes.device):
                self.optimiser.step()
            # A fused optimiser does not raise the version counters of the weights itself.
            torch.autograd.graph.increment_version(self.objective.parameters())
        self.optimiser.zero_grad(set_to_none=True)
        return Update(loss, norm, rate, tokens)

    def gradients(self, batches: list[Part], tokens: int, number: int, precision: str) -> float:
        """Add up the gradients of the loss per token of the whole batch; this process's share of that loss."""
        device, total = self.processes.device, 0.0
        for batch_part in batches:
            batch = batch_part.batch
            doing = (
                f"on a batch of {len(batch.rows)} sentences, {batch.source.shape[1]} source and "
                f"{batch.target_in.shape[1]} target positions (step {number}, rows {_row_list(batch_part.rows)})"
            )
            lower = "training.batch_tokens or data.longest"
            with memory_named(doing, lower), products(precision):
                with arithmetic(precision, device):
                    loss = self.objective(batch.to(device)) / tokens
                if batch_part.idle:
                    loss = loss * 0
                loss.backward()
            total += float(loss.detach())
        return total

    def sum_and_clip(self) -> float:
        """Sum the gradients over all processes and scale them to the largest norm; their norm before."""
        # Every process has gradients of the same weights: an idle one goes through the model, too.
        parameters = list(self.objective.parameters())
        self.processes.sum(p.grad for p in parameters if p.grad is not None)
        return float(nn.utils.clip_grad_norm_(parameters, self.settings.clip or math.inf))

    def gather(self) -> None:
        """Copy weights and moments to the model and the optimiser that are saved, if they are others."""


def _row_list(rows: NDArray[np.int64]) -> str:
    """The first of the rows of a batch, for messages."""
    return ", ".join(map(str, rows[:5].tolist())) + ", ..."
