"""The base class of normalisers, which keeps the rules on unreadable keys for all of them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor


class Normaliser(ABC):
    """Rows of scores -> rows of weights.

    `rows` is the mathematics. Calling the normaliser keeps the rules around it: an unreadable key
    weighs exactly 0 and gets no gradient, and so does a row with nothing to read.
    """

    @abstractmethod
    def rows(self, scores: Float[Tensor, "*batch keys"]) -> Float[Tensor, "*batch keys"]:
        """Weights of rows that have something to read; unreadable keys score `lowest`."""

    def lowest(self, dtype: torch.dtype) -> float:
        """The score of unreadable keys."""
        return -torch.inf

    def __call__(
        self,
        scores: Float[Tensor, "*#batch queries keys"],
        readable: Bool[Tensor, "*#batch #queries #keys"] | None = None,
        /,
    ) -> Float[Tensor, "... queries keys"]:
        if scores.shape[-1] == 0 or readable is None:
            return scores if scores.numel() == 0 else self.rows(scores)
        nothing = ~readable.any(dim=-1, keepdim=True)
        lowest = scores.new_full((), self.lowest(scores.dtype))
        floor = torch.where(nothing, 0.0, lowest)
        weights = self.rows(torch.where(readable, scores, floor))
        return torch.where(readable, weights, 0.0)


@dataclass(frozen=True)
class FunctionNormaliser(Normaliser):
    """A function of the caller's, rows -> rows, along the last axis.

    To it an unreadable key scores -sqrt(largest number), -1.8e19 in float32: its exponential is 0 as
    that of -inf is, and the gradient of a factor on it is 0 where that of one on -inf is NaN.
    """

    function: Callable[[Tensor], Tensor]

    def lowest(self, dtype: torch.dtype) -> float:
        return -math.sqrt(torch.finfo(dtype).max)

    def rows(self, scores: Tensor) -> Tensor:
        return self.function(scores)
