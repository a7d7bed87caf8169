"""The softmax."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.attention.normalisers.protocol import Normaliser


@dataclass(frozen=True)
class Softmax(Normaliser):
    """exp(s_i / T) / sum_j exp(s_j / T).

    Source: Bridle 1990; the temperature T as in Hinton et al. 2015, arXiv 1503.02531, equation 1.

    Args:
        temperature: T, above 0; below 1 it sharpens, above 1 it flattens.

    Example:
        >>> import torch
        >>> Softmax()(torch.zeros(1, 4))
        tensor([[0.2500, 0.2500, 0.2500, 0.2500]])
    """

    temperature: float = 1.0

    def __post_init__(self) -> None:
        if isinstance(self.temperature, Tensor):
            raise TypeError(
                "temperature is a tensor: pass a number; for one that is learned,"
                " normaliser=lambda rows: torch.softmax(rows / temperature, -1)"
            )
        if not self.temperature > 0:
            raise ValueError(f"temperature is {self.temperature}: pass one above 0, or use Hard()")

    def rows(self, scores: Tensor) -> Tensor:
        if self.temperature < 1:  # dividing must not make the highest score infinite
            scores = scores - scores.amax(-1, keepdim=True).detach()
        return torch.softmax(scores / self.temperature if self.temperature != 1 else scores, -1)
