"""Normalisers: a row of scores -> a row of weights, of which unreadable keys get exactly 0."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.attention.by_name import named, register
from regard.attention.constants import check_number

__all__ = [
    "Entmax",
    "Hard",
    "Identity",
    "Normaliser",
    "NormaliserLike",
    "FunctionNormaliser",
    "Softmax",
    "Sparsemax",
    "as_normaliser",
]

NEAR = 1.1  # an alpha below this is near 1
CLASSES: dict[str, type["Normaliser"]] = {}  # those that have a name


class Normaliser(ABC):
    """Rows of scores -> rows of weights.

    `rows` is the mathematics. Calling the normaliser keeps the rules around it: an unreadable key
    weighs exactly 0 and gets no gradient, and so does a row with nothing to read.
    `class Mine(Normaliser, name="mine")` may be passed as "mine".

    Attributes:
        is_ours: whether it is of this library, so that it reads nothing but the scores of readable keys.
        reads_one_key: whether each row has weight on one key alone, so that a reading is one of the values.
    """

    is_ours: ClassVar[bool] = False
    reads_one_key: ClassVar[bool] = False

    def __init_subclass__(cls, name: str | tuple[str, ...] = (), **options: Any) -> None:
        super().__init_subclass__(**options)
        register(CLASSES, cls, name)
        cls.is_ours = cls.__module__ == __name__

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


FunctionNormaliser.is_ours = False  # the function may read anything


@dataclass(frozen=True)
class Softmax(Normaliser, name="softmax"):
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
        learned = "normaliser=lambda rows: torch.softmax(rows / temperature, -1)"
        check_number("temperature", self.temperature, f"for one that is learned, {learned}")
        if not self.temperature > 0:
            raise ValueError(f"temperature is {self.temperature}: pass one above 0, or use Hard()")

    def rows(self, scores: Tensor) -> Tensor:
        if self.temperature < 1:  # dividing must not make the highest score infinite
            scores = scores - scores.amax(-1, keepdim=True).detach()
        return torch.softmax(scores / self.temperature if self.temperature != 1 else scores, -1)


@dataclass(frozen=True)
class Hard(Normaliser, name="hard"):
    """Weight 1 on the key with the highest score, the first of equals; 0 on the others.

    On a processor, equal keys count as equals under every score of `regard.scores`, though the
    products of a query with them may be rounded differently. On a GPU, in a compiled function or
    under a transform, and for a score of your own, the computed scores decide.

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
    reads_one_key = True

    def __post_init__(self) -> None:
        if self.gradient not in ("none", "straight_through"):
            raise ValueError(f'gradient is {self.gradient!r}: pass "none" or "straight_through"')

    def rows(self, scores: Tensor) -> Tensor:
        best = scores.argmax(dim=-1, keepdim=True)
        hard = torch.zeros_like(scores, requires_grad=False).scatter(-1, best, 1.0)
        if self.gradient == "none":
            return hard
        soft = torch.softmax(scores, dim=-1)
        return hard + (soft - soft.detach())


@dataclass(frozen=True)
class Identity(Normaliser, name="identity"):
    """The scores as the weights: linear attention (Katharopoulos et al. 2020, arXiv 2006.16236).

    Example:
        >>> import torch
        >>> Identity()(torch.tensor([[3.0, -1.0]]))
        tensor([[ 3., -1.]])
    """

    def rows(self, scores: Tensor) -> Tensor:
        return scores


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
    """The projections onto the simplex: argmax over p in it of p . s + H_alpha(p), H_alpha Tsallis' entropy.

    p_i = [(alpha - 1) s_i - tau]_+ ^ (1 / (alpha - 1)), with tau such that p sums to 1. They have the
    derivatives that can be had: torch.compile refuses those forwards.
    """
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


NormaliserLike: TypeAlias = Normaliser | Callable[[Tensor], Tensor] | str


def as_normaliser(normaliser: NormaliserLike) -> Normaliser:
    """The normaliser itself, the one of this name, or the caller's function made one.

    Raises:
        ValueError: The name is unknown.
        TypeError: It is not a normaliser.

    Example:
        >>> as_normaliser("entmax")
        Entmax(alpha=1.5)
    """
    example = "one of regard.normalisers, its name or a function rows -> rows"
    built = named("normaliser", normaliser, CLASSES, example)
    return built if isinstance(built, Normaliser) else FunctionNormaliser(built)
