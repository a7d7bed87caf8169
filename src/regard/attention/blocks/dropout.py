"""Dropout as a layer."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.dropout import drop


class Dropout(nn.Module):
    """Sets each number to zero with probability `rate` while training; see `drop`.

    Args:
        rate: From 0 up to, but not, 1.

    Raises:
        ValueError: The rate is out of range.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        if not 0 <= rate < 1:
            raise ValueError(f"a dropout rate is from 0 up to, not including, 1, got {rate}")
        self.rate = rate

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        return drop(x, self.rate) if self.training and self.rate > 0 else x

    def extra_repr(self) -> str:
        return str(self.rate)
