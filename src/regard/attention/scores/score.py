"""Scores: functions of a query and a key. Here those that are dot products of vectors."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.constants import check_number
from regard.attention.products import dots, widen
from regard.attention.shapes import check_widths

Queries: TypeAlias = Float[Tensor, "*#batch queries d_query"]
Keys: TypeAlias = Float[Tensor, "*#batch keys d_key"]
Scores: TypeAlias = Float[Tensor, "... queries keys"]


@runtime_checkable
class Score(Protocol):
    """Any callable (query, key) -> scores; the caller's own functions are scores too."""

    def __call__(self, query: Queries, key: Keys, /) -> Scores: ...


class DotLike(ABC):
    """A score that is a dot product of some function of the query and some function of the key.

    score(q, k) = scale * f(q) . g(k): fused dot-product kernels can serve it. A subclass defines
    `factors`. Where a subclass overrides the call itself, kernels call it and never `factors`.
    """

    @abstractmethod
    def factors(self, query: Queries, key: Keys) -> tuple[Tensor, Tensor, float]:
        """f(query), g(key) and the scale."""

    def __call__(self, query: Queries, key: Keys, /) -> Scores:
        query, key, scale = self.factors(query, key)
        return dots(query if scale == 1.0 else query * scale, key)


@dataclass(frozen=True)
class Dot(DotLike):
    """The dot product q . k (Luong et al. 2015, arXiv 1508.04025, equation 8).

    Example:
        >>> import torch
        >>> Dot()(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0], [0.0, 1.0]]))
        tensor([[11.,  2.]])
    """

    def factors(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, float]:
        check_widths(query.shape, key.shape)
        return query, key, 1.0

    def cost_options(self) -> dict[str, Any]:
        """The options that count its products in `regard.costs.parts.attention`."""
        return {"score": "dot"}


@dataclass(frozen=True)
class ScaledDot(DotLike):
    """The dot product over the root of the width, q . k / sqrt(d).

    Source: Vaswani et al. 2017, arXiv 1706.03762, equation 1.

    Args:
        scale: the factor to use in place of 1 / sqrt(d).

    Example:
        >>> import torch
        >>> ScaledDot()(torch.ones(1, 4), torch.ones(2, 4))
        tensor([[2., 2.]])
    """

    scale: float | None = None

    def __post_init__(self) -> None:
        if self.scale is not None:
            _check_scale(self.scale)

    def factors(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, float]:
        check_widths(query.shape, key.shape)
        width = query.shape[-1]
        scale = self.scale if self.scale is not None else width**-0.5 if width else 1.0
        return query, key, scale

    def cost_options(self) -> dict[str, Any]:
        return {"score": "scaled_dot"}


@dataclass(frozen=True)
class Cosine(DotLike):
    """The cosine of the angle between query and key, times a scale: scale * q . k / (|q| |k|).

    Source: Graves et al. 2014, arXiv 1410.5401, equation 6 (our scale is their beta).
    A vector shorter than 1e-12 has cosine 0 with everything, and no gradient.

    Args:
        scale: factor on the cosine; scores lie between -scale and scale.

    Example:
        >>> import torch
        >>> Cosine()(torch.tensor([[3.0, 4.0]]), torch.tensor([[6.0, 8.0]]))
        tensor([[1.]])
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        _check_scale(self.scale)

    def factors(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, float]:
        check_widths(query.shape, key.shape)
        return unit(query), unit(key), self.scale

    def cost_options(self) -> dict[str, Any]:
        return {"score": "cosine"}


SHORTEST = 1e-12


def unit(vectors: Float[Tensor, "*batch length width"]) -> Float[Tensor, "*batch length width"]:
    """Every vector divided by its length; zeros, without a gradient, where it is too short for that.

    Half precisions are divided in float32: neither the shortest nor the longest length fits them.
    """
    wide = widen(vectors)
    length = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
    unit: Tensor = wide / length.masked_fill(length < SHORTEST, torch.inf)
    return unit.to(vectors.dtype)


def _check_scale(scale: object) -> None:
    learned = "multiply the query by it before a score with scale=1.0"
    check_number("scale", scale, f"for one that is learned, {learned}")
