"""All of the weight on one key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from regard.attention.normalisers.protocol import Normaliser


@dataclass(frozen=True)
class Hard(Normaliser):
    """Weight 1 on the key with the highest score, the first of equals; 0 on the others.

    Source: Xu et al. 2015, arXiv 1502.03044, section 4.1; straight-through gradients of
    Bengio et al. 2013, arXiv 1308.3432.

    Args:
        gradient: "none" lets no gradient reach the scores; "straight_through" gives them
            the gradient that a softmax would.

    Example:
        >>> import torch
        >>> Hard()(torch.tensor([[1.0, 5.0, 5.0]]))
        tensor([[0., 1., 0.]])
    """

    gradient: Literal["none", "straight_through"] = "none"

    def __post_init__(self) -> None:
        if self.gradient not in ("none", "straight_through"):
            raise ValueError(f'gradient is {self.gradient!r}: pass "none" or "straight_through"')

    def rows(self, scores: Tensor) -> Tensor:
        first = scores.argmax(dim=-1, keepdim=True)
        hard = torch.zeros_like(scores, requires_grad=False).scatter(-1, first, 1.0)
        if self.gradient == "none":
            return hard
        soft = torch.softmax(scores, dim=-1)
        return hard + (soft - soft.detach())
