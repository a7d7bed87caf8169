"""The optimiser of a training: Adam, AdamW, or Muon for the matrices of layers with AdamW for all other weights."""

from collections import defaultdict
from typing import Any

import torch
from torch import nn

from regard.translation.settings.training import TrainingSettings


def optimiser_of(settings: TrainingSettings, module: nn.Module) -> torch.optim.Optimizer:
    """The configured optimiser for all weights of a module."""
    shared: dict[str, Any] = {"lr": settings.learning_rate, "weight_decay": settings.weight_decay}
    adam: dict[str, Any] = {**shared, "betas": settings.betas, "eps": 1e-9, "fused": True}
    if settings.optimiser == "adam":
        return torch.optim.Adam(module.parameters(), **adam)
    if settings.optimiser == "adamw":
        return torch.optim.AdamW(module.parameters(), **adam)
    matrices, others = _divide(module)
    # Updates as large as Adam's, so that one learning rate serves both (arXiv 2502.16982, section 2.2).
    muon = torch.optim.Muon(matrices, **shared, adjust_lr_fn="match_rms_adamw")
    return Joined(muon, torch.optim.AdamW(others, **adam))


def _divide(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """The matrices of a model's layers; and its other weights: embeddings, the output layer, vectors.

    A row of an embedding or of the output layer belongs to one word, and most words are rare: such rows are no linear
    map whose directions should all be updated equally.
    """
    words = {
        id(weight)
        for name, part in model.named_modules()
        if isinstance(part, nn.Embedding) or name == "output"
        for weight in part.parameters(recurse=False)
    }
    matrices = [each for each in model.parameters() if each.ndim == 2 and id(each) not in words]
    chosen = {id(each) for each in matrices}
    return matrices, [each for each in model.parameters() if id(each) not in chosen]


class Joined(torch.optim.Optimizer):
    """Several optimisers, each of other weights, as one: with all their groups and one state."""

    def __init__(self, *parts: torch.optim.Optimizer) -> None:
        # The groups are those of the parts themselves, so a learning rate that is set here reaches them.
        super().__init__([group for part in parts for group in part.param_groups], {})
        self.parts, self.state = parts, defaultdict(dict)
        for part in parts:
            part.state = self.state

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for part in self.parts:
            part.step()
