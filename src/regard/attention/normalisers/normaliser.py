"""Normalisers: the rules on unreadable keys, and the weights of softmax, of one key and of none."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.attention.by_name import register
from regard.attention.constants import check_number

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
        cls.is_ours = cls.__module__.startswith(__package__)

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
