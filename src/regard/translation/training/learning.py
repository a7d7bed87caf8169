"""What learns: the objective, the weights it is made small by, and the gradients of all processes."""

from __future__ import annotations

import torch
from torch import nn

from regard.translation.configuration import TrainingSection
from regard.translation.models.protocol import TranslationModel
from regard.translation.training.guiding import Guide
from regard.translation.training.loss import Objective
from regard.translation.training.processes import Processes


def optimiser_of(settings: TrainingSection, module: nn.Module) -> torch.optim.Optimizer:
    """The optimiser a configuration asks for, over all of a module's weights."""
    kind = torch.optim.AdamW if settings.optimiser == "adamw" else torch.optim.Adam
    return kind(
        module.parameters(),
        lr=settings.learning_rate,
        betas=settings.betas,
        eps=1e-9,
        weight_decay=settings.weight_decay,
        fused=True,
    )


class Learner:
    """The weights are the model's own, the same in every process; gradients are summed over them."""

    def __init__(
        self,
        model: TranslationModel,
        optimiser: torch.optim.Optimizer,
        settings: TrainingSection,
        processes: Processes,
        guide: Guide | None = None,
    ) -> None:
        self.model = model
        self.optimiser = optimiser
        self.objective = Objective(model, settings.label_smoothing, guide)
        self._processes = processes

    def sum_gradients(self) -> None:
        """Make the gradients those of the whole batch, where each process has worked on its part."""
        if self._processes.size > 1:
            # Every process has gradients of the same weights: an idle one goes through the model, too.
            parameters = self.objective.parameters()
            self._processes.sum(p.grad for p in parameters if p.grad is not None)

    def clip(self, limit: float) -> float:
        """Scale the gradients down to a norm of at most `limit`; their norm before."""
        return float(torch.nn.utils.clip_grad_norm_(self.objective.parameters(), limit))

    def gather(self) -> None:
        """Bring the model, and the optimiser that is saved with it, up to date where they are written."""
