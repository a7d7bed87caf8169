"""Dropout that takes 16 random bits for each number."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention import constants
from regard.loops.availability import transformed

LANES = 1 << 16  # values of 16 bits; a draw of 64 bits decides for four numbers


def drop(x: Float[Tensor, "*shape"], rate: float) -> Float[Tensor, "*shape"]:
    """The numbers, each set to 0 at this rate, the others scaled up so that the mean stays.

    Source: Srivastava et al. 2014. On a CPU torch draws one random number for each number of the
    tensor, which takes longer than the layers around it; there the rate is rounded to 1 in 65,536.
    Compilers and transforms get torch's own, which knows the randomness that vmap is called with.
    """
    if x.is_cpu and round(rate * LANES) < LANES and not transformed():
        return x * keep(x, rate)
    return F.dropout(x, rate)


def keep(like: Float[Tensor, "*shape"], rate: float) -> Float[Tensor, "*shape"]:
    """A factor for each number of `like`: 0 where it is dropped, 1 / (1 - rate) where it is kept.

    On a processor, at rates that round to less than 1: `drop` asks before.
    """
    return draw(like, rate).mul_(growth(rate))


def draw(
    like: Float[Tensor, "*shape"], rate: float, generator: torch.Generator | None = None
) -> Float[Tensor, "*shape"]:
    """The same without scaling: 1 for each number that is kept."""
    # Without bounds the top bit of each draw would always be 0.
    draws = like.new_empty((like.numel() + 3) // 4, dtype=torch.int64)
    draws.random_(-(1 << 63), None, generator=generator)
    lanes = draws.view(torch.int16)[: like.numel()].view(like.shape)
    # In place, 1 where a number is kept: booleans would take four times as long.
    return lanes.ge_(round(rate * LANES) - LANES // 2).to(like.dtype)


def growth(rate: float) -> float:
    """By how much what is kept grows: 1 / (1 - rate), with the rate as it is rounded."""
    return LANES / (LANES - round(rate * LANES))


class Dropout(nn.Module):
    """Sets each number to zero with probability `rate` while training; see `drop`.

    Args:
        rate: From 0 up to, but not, 1.

    Raises:
        TypeError: The rate is no number.
        ValueError: The rate is out of range.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = constants.rate("dropout", rate)

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        return drop(x, self.rate) if self.training and self.rate > 0 else x

    def extra_repr(self) -> str:
        return str(self.rate)
