"""Dropout whose coin tosses cost a byte each."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn


class Dropout(nn.Module):
    """Sets each number to zero with probability `rate` and scales the others so that the mean stays.

    Srivastava et al. 2014. On a CPU, drawing one Bernoulli number an element costs more than the layers around it;
    here eight elements share one 64-bit draw, so the rate is rounded to a multiple of 1/256 (0.1 becomes 26/256) and
    the scale is exact for the rounded rate. On other devices it is torch's own.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        if not 0 <= rate < 1:
            raise ValueError(f"a dropout rate is from 0 up to, not including, 1, got {rate}")
        self.rate = rate

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        if not self.training or self.rate == 0:
            return x
        if x.device.type != "cpu":
            return nn.functional.dropout(x, self.rate)
        return x * keep(x, self.rate)

    def extra_repr(self) -> str:
        return str(self.rate)


def keep(like: Float[Tensor, "*shape"], rate: float) -> Float[Tensor, "*shape"]:
    """A factor for each element of `like`: 0 where it is dropped, 1 / (1 - rate) where it is kept."""
    bytes_, dropped = draws(like.shape, rate)
    kept = bytes_ >= dropped
    factors: Tensor = kept.view(like.shape).to(like.dtype).mul_(256 / (256 - dropped))
    return factors


def draws(shape: torch.Size, rate: float) -> tuple[UInt8[Tensor, " count"], int]:
    """A random byte for each number of a tensor, and how many of the 256 bytes drop theirs: those below."""
    count = shape.numel()
    made: Any = torch.empty((count + 7) // 8, dtype=torch.int64)
    # The whole range of 64 bits: without bounds the top bit of each draw would always be 0.
    made.random_(-(2**63), None)
    bytes_: Tensor = made.view(torch.uint8)[:count]
    return bytes_, min(max(1, round(256 * rate)), 255)
