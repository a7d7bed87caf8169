"""The normaliser that changes nothing."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from regard.attention.normalisers.protocol import Normaliser


@dataclass(frozen=True)
class Identity(Normaliser):
    """The scores as the weights: linear attention (Katharopoulos et al. 2020, arXiv 2006.16236).

    Example:
        >>> import torch
        >>> Identity()(torch.tensor([[3.0, -1.0]]))
        tensor([[ 3., -1.]])
    """

    def rows(self, scores: Tensor) -> Tensor:
        return scores
