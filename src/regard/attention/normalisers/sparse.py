"""Sparse weights: the projections onto the simplex, and their family.

entmax_alpha(s) = argmax over p in the simplex of  p . s + H_alpha(p),  H_alpha Tsallis' entropy.
Its solution is p_i = [(alpha - 1) s_i - tau]_+ ^ (1 / (alpha - 1)), with tau such that p sums to 1.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.attention.constants import check_number
from regard.attention.normalisers.normaliser import Normaliser

NEAR = 1.1  # an alpha below this is near 1


@dataclass(frozen=True)
class Sparsemax(Normaliser, name="sparsemax"):
    """The Euclidean projection of the scores onto the simplex, [s_i - tau]_+.

    Source: Martins and Astudillo 2016, arXiv 1602.02068, algorithm 1 and equation 14.

    Example:
        >>> import torch
        >>> Sparsemax()(torch.tensor([[1.0, 0.5, -3.0]]))
        tensor([[0.7500, 0.2500, 0.0000]])
    """

    def rows(self, scores: Tensor) -> Tensor:
        return _simplex(scores, 2.0)


@dataclass(frozen=True)
class Entmax(Normaliser, name="entmax"):
    """The alpha-entmax of the scores: softmax at alpha 1, sparsemax at 2, and sparser above.

    Source: Peters et al. 2019, arXiv 1905.05702, equations 10 and 14; by bisection, algorithm 1.

    Args:
        alpha: at least 1. From just above 1, keys with low scores weigh exactly 0.

    Example:
        >>> import torch
        >>> Entmax(1.5)(torch.tensor([[2.0, 2.0, -1.0]]))
        tensor([[0.5000, 0.5000, 0.0000]])
    """

    alpha: float = 1.5

    def __post_init__(self) -> None:
        check_number("alpha", self.alpha, "no gradient reaches alpha")
        if not 1 <= self.alpha < float("inf"):
            raise ValueError(f"alpha is {self.alpha}: pass a number of at least 1")

    def rows(self, scores: Tensor) -> Tensor:
        if self.alpha == 1:
            return torch.softmax(scores, dim=-1)
        return _simplex(scores, float(self.alpha))


def _simplex(scores: Tensor, alpha: float) -> Tensor:
    """The weights, with the derivatives that can be had: torch.compile refuses those forwards."""
    kind = _Simplex if torch.compiler.is_compiling() else _ForwardSimplex
    weights: Tensor = kind.apply(scores, alpha)  # type: ignore[no-untyped-call]
    return weights


class _Simplex(torch.autograd.Function):
    """Forward by sorting (alpha 2) or bisection; backward from the weights alone.

    The Jacobian is diag(u) - u u^T / sum(u), with u_i = p_i ^ (2 - alpha) where p_i > 0, else 0
    (Peters et al., equation 14). It is written in operations that can be differentiated again.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(scores: Tensor, alpha: float) -> Tensor:
        exact = scores.to(torch.promote_types(scores.dtype, torch.float32))
        centred = exact - exact.amax(dim=-1, keepdim=True)
        solve = _project if alpha == 2.0 else _bisect
        return solve(centred, alpha).to(scores.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:
        ctx.alpha = inputs[1]
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _product(ctx.saved_tensors[0], ctx.alpha, gradients[0]), None


class _ForwardSimplex(_Simplex):
    """The same with its derivative in forward mode."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:
        _Simplex.setup_context(ctx, inputs, output)
        ctx.save_for_forward(output)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, alpha: None) -> Tensor:
        return _product(ctx.saved_tensors[0], ctx.alpha, tangent)


def _product(weights: Tensor, alpha: float, vector: Tensor) -> Tensor:
    """The Jacobian, which is symmetric, times a vector."""
    support = weights > 0
    scale = torch.where(support, torch.where(support, weights, 1.0) ** (2 - alpha), 0.0)
    mean = (vector * scale).sum(-1, keepdim=True) / scale.sum(-1, keepdim=True)
    return scale * (vector - mean)


def _project(scores: Tensor, alpha: float) -> Tensor:
    """Sparsemax by sorting: the support is the k highest for the last k with 1 + k s_k > sum."""
    ordered = scores.sort(dim=-1, descending=True).values
    sums = ordered.cumsum(dim=-1) - 1
    counts = torch.arange(1, scores.shape[-1] + 1, device=scores.device, dtype=scores.dtype)
    size = (counts * ordered > sums).sum(dim=-1, keepdim=True)
    threshold = sums.gather(-1, size - 1) / size
    return (scores - threshold).clamp(min=0)


def _bisect(scores: Tensor, alpha: float) -> Tensor:
    """Entmax by halving an interval that holds t = (1 + tau) / (alpha - 1); the highest score is 0.

    In t the weights are [1 + (alpha - 1) (s - t)]_+ ^ (1 / (alpha - 1)), which goes to exp(s - t).
    """
    scaled, low = scores * (alpha - 1), scores.new_zeros(*scores.shape[:-1], 1)
    width = -math.expm1((1 - alpha) * math.log(scores.shape[-1])) / (alpha - 1)
    power = _near_one if alpha < NEAR else _power
    for _ in range(54 if scores.dtype == torch.float64 else 28):
        width /= 2
        total = power(scaled - (alpha - 1) * (low + width), alpha).sum(dim=-1, keepdim=True)
        low = torch.where(total >= 1, low + width, low)
    weights = power(scaled - (alpha - 1) * low, alpha)
    return weights / weights.sum(dim=-1, keepdim=True)


def _power(offset: Tensor, alpha: float) -> Tensor:
    """[1 + x]_+ ^ (1 / (alpha - 1))."""
    return (1 + offset).clamp(min=0).pow(1 / (alpha - 1))


def _near_one(offset: Tensor, alpha: float) -> Tensor:
    """The same by logarithms: rounding 1 + x would be raised to a power of 1 / (alpha - 1)."""
    return (offset.clamp(min=-1).log1p() / (alpha - 1)).exp()
