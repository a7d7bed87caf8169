"""Parameters of scores: one set for all heads or one per head, and their projections."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.shapes import ShapeError

Heads = int | Sequence[int] | None


def leading(heads: Heads) -> tuple[int, ...]:
    """The axes that come before a parameter's own: none, one per head, or (key heads, group)."""
    if heads is None:
        return ()
    return (heads,) if isinstance(heads, int) else tuple(heads)


def parameter(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(*shape))


def glorot_(weight: Tensor) -> None:
    """Glorot and Bengio (2010), equation 16, on the last two axes."""
    bound = math.sqrt(6.0 / max(1, weight.shape[-1] + weight.shape[-2]))
    nn.init.uniform_(weight, -bound, bound)


def project(
    vectors: Float[Tensor, "*#batch length d_in"], weight: Float[Tensor, "*heads d_out d_in"]
) -> Float[Tensor, "... length d_out"]:
    """Every vector through the weight, or through its own head's weight."""
    weight = weight.to(vectors.dtype)
    if weight.ndim == 2:
        return nn.functional.linear(vectors, weight)
    return torch.einsum("...ld,...od->...lo", vectors, weight)


def check_width(score: str, side: str, vectors: Tensor, width: int) -> None:
    if vectors.shape[-1] != width:
        raise ShapeError(
            f"{side} is {vectors.shape[-1]} wide, this {score} was made with d_{side}={width}:"
            f" pass a {side} of shape [..., {vectors.shape[-2]}, {width}]"
        )
