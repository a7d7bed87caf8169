"""The optimiser of a training: Adam, AdamW, or Muon for the matrices of layers with AdamW for all other weights."""

from collections import defaultdict
from typing import Any

import torch
from torch import Tensor, nn

from regard.translation.settings.training import TrainingSettings


def optimiser_of(settings: TrainingSettings, module: nn.Module) -> torch.optim.Optimizer:
    shared: dict[str, Any] = {"lr": settings.learning_rate, "weight_decay": settings.weight_decay}
    adam: dict[str, Any] = {**shared, "betas": settings.betas, "eps": 1e-9, "fused": True}
    if settings.optimiser == "adam":
        return torch.optim.Adam(module.parameters(), **adam)
    if settings.optimiser == "adamw":
        return torch.optim.AdamW(module.parameters(), **adam)
    matrices, other_weights = _divide(module)
    return Joined(Muon(matrices, **shared), torch.optim.AdamW(other_weights, **adam))


def _divide(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """The matrices of a model's layers; and its other weights: embeddings, the output layer, vectors.

    A row of an embedding or of the output layer belongs to one word, and most words are rare: such rows are no linear
    map whose directions should all be updated equally.
    """
    words = {
        id(weight)
        for name, module in model.named_modules()
        if isinstance(module, nn.Embedding) or name == "output"
        for weight in module.parameters(recurse=False)
    }
    matrices = [
        weight for weight in model.parameters() if weight.ndim == 2 and id(weight) not in words
    ]
    matrix_ids = {id(weight) for weight in matrices}
    return matrices, [weight for weight in model.parameters() if id(weight) not in matrix_ids]


class Muon(torch.optim.Optimizer):
    """Momentum, made orthogonal: each update goes equally far in all directions of a matrix (Jordan et al. 2024).

    `torch.optim.Muon` computes the same, but its products are always in bfloat16, which a processor without
    instructions for bfloat16 has to emulate. Here they are computed as the products of the model are: in bfloat16 if
    `step` runs under autocast, else in float32. On an AVX-512 Xeon that is three times as quick as torch's.
    """

    MOMENTUM = 0.95

    def __init__(self, matrices: list[nn.Parameter], lr: float, weight_decay: float) -> None:
        super().__init__(matrices, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for matrix in group["params"]:
                if matrix.grad is None:
                    continue
                state = self.state[matrix]
                if not state:
                    state["momentum_buffer"] = torch.zeros_like(matrix)
                average = state["momentum_buffer"].lerp_(matrix.grad, 1 - self.MOMENTUM)
                ahead = matrix.grad.lerp(average, self.MOMENTUM)  # Nesterov's
                matrix.mul_(1 - group["lr"] * group["weight_decay"])
                # Updates as large as Adam's: one learning rate serves both (Liu et al. 2025, arXiv 2502.16982, 2.2).
                size = 0.2 * max(matrix.shape) ** 0.5
                matrix.add_(orthogonal(ahead), alpha=-group["lr"] * size)


def orthogonal(matrix: Tensor) -> Tensor:
    """U V^T of the singular value decomposition U S V^T, roughly, by five steps of Newton and Schulz.

    The coefficients are those of Jordan et al. 2024 (https://kellerjordan.github.io/posts/muon): they bring all
    singular values from [0, 1] into about [0.7, 1.2] as soon as possible, and not nearer to 1.
    """
    tall = matrix.shape[0] > matrix.shape[1]
    x = (matrix.T if tall else matrix) / matrix.norm().clamp(min=1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=-4.775, alpha=2.0315), x, beta=3.4445)
    result: Tensor = (x.T if tall else x).to(matrix.dtype)
    return result


class Joined(torch.optim.Optimizer):
    """Several optimisers, each of other weights, as one: with all their groups and one state."""

    def __init__(self, *optimisers: torch.optim.Optimizer) -> None:
        # The groups are those of the parts themselves, so a learning rate that is set here reaches them.
        super().__init__(
            [group for optimiser in optimisers for group in optimiser.param_groups], {}
        )
        self.parts, self.state = optimisers, defaultdict(dict)
        for optimiser in optimisers:
            optimiser.state = self.state

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for optimiser in self.parts:
            optimiser.step()
