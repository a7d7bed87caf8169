"""Scores: functions of a query and a key. Here those that are dot products of vectors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import (
    Any,
    ClassVar,
    NamedTuple,
    Protocol,
    TypeAlias,
    TypeGuard,
    runtime_checkable,
)

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.by_name import register
from regard.attention.constants import check_number
from regard.attention.products import dots, widen
from regard.attention.shapes import Shape, ShapeError

Queries: TypeAlias = Float[Tensor, "*#batch queries d_query"]
Keys: TypeAlias = Float[Tensor, "*#batch keys d_key"]
Scores: TypeAlias = Float[Tensor, "... queries keys"]


@runtime_checkable
class Score(Protocol):
    """Any callable (query, key) -> scores; the caller's own functions are scores too."""

    def __call__(self, query: Queries, key: Keys, /) -> Scores: ...


Change = Callable[[Tensor, int], Tensor]
CLASSES: dict[str, type[PairScore]] = {}  # those that have a name


class Terms(NamedTuple):
    """The terms whose sum, times the scale, is the score of a query and a key, and its bound."""

    kind: str
    terms: Tensor
    query: Tensor  # what the terms are made of
    key: Tensor
    scale: float = 1.0
    cap: float | None = None


class PairScore(ABC):
    """A score that depends on the numbers of one query and one key alone.

    It says of itself what kernels and looks need to know: ask `pairwise` first, which tells whether
    an override or a hook makes it another score. `class Mine(PairScore, name="mine")` may be passed as
    "mine"; several names are a tuple. A score with parameters is an nn.Module as well, with the two bases
    in either order.

    Attributes:
        widths: the arguments that make a score which owns parameters, of "d_query", "d_key" and
            "d_hidden"; `build` passes `heads` with them.
        computation: the methods that compute it; with one of them replaced it is another score.
        is_additive: whether it is weight . tanh(query_features(query) + key_features(key)), of this
            parameter and these methods.
    """

    widths: ClassVar[tuple[str, ...]] = ()
    computation: ClassVar[tuple[str, ...]] = ()
    is_additive: ClassVar[bool] = False

    def __init_subclass__(cls, name: str | tuple[str, ...] = (), **options: Any) -> None:
        super().__init_subclass__(**options)
        register(CLASSES, cls, name)
        if issubclass(cls, nn.Module) and cls.__call__ is PairScore.__call__:
            cls.__call__ = nn.Module.__call__  # type: ignore[method-assign]  # it runs hooks

    @property
    def alike_for_heads(self) -> bool:
        """Whether all heads have the same score, so that some of them can be computed alone."""
        return False

    @property
    def head_axes(self) -> Shape:
        """The axes of heads in front of its parameters; none where one set serves all heads."""
        return ()

    def terms(self, query: Queries, key: Keys) -> Terms | None:
        """The terms of the score of one query and one key; None where there are none."""
        return None

    def capped(self) -> tuple[Score, float]:
        """The score without its bound, and the bound; 0 where there is none."""
        return self, 0.0

    @property
    def pair_width(self) -> int:
        """How many numbers the score of a pair takes."""
        return 1

    def is_itself(self) -> bool:
        """Whether no subclass, attribute or hook replaces the computation of this class."""
        owner = next(kind for kind in type(self).__mro__ if "computation" in vars(kind))
        return unchanged(self, owner, *self.computation)

    def with_parameters(self, change: Change) -> PairScore | None:
        """The score with other parameters; None where it may read tensors that it does not name.

        `change` is called for every parameter that the score uses, with the number of axes behind
        those of heads.
        """
        return None

    def prepare(self, key: Keys) -> tuple[Score, Float[Tensor, "... keys d_prepared"]]:
        """A score and keys that give the same scores with less work for each query."""
        return self, key

    def prepare_both(self, query: Queries, key: Keys) -> tuple[Score, Tensor, Tensor]:
        """A score, queries and keys that give the same scores with less work for each pair."""
        return self, query, key

    @abstractmethod
    def __call__(self, query: Queries, key: Keys, /) -> Scores: ...


class DotLike(PairScore):
    """A score that is a dot product of some function of the query and some function of the key.

    score(q, k) = scale * f(q) . g(k): fused dot-product kernels can serve it. A subclass defines
    `factors`. Where a subclass overrides the call itself, kernels call it and never `factors`.

    Attributes:
        is_linear: whether f and g are linear. A subclass that defines `factors` says so again.
    """

    is_linear: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "factors" in vars(cls):
            cls.is_linear = vars(cls).get("is_linear", False)
        if issubclass(cls, nn.Module):
            if cls.__call__ is DotLike.__call__:
                cls.__call__ = nn.Module.__call__  # type: ignore[method-assign]  # it runs hooks
            if cls.forward is nn.Module.forward:
                cls.forward = DotLike.__call__

    @abstractmethod
    def factors(self, query: Queries, key: Keys) -> tuple[Tensor, Tensor, float]:
        """f(query), g(key) and the scale."""

    def split(self, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor, float] | None:
        """The factors of the components of one query and one key, which are sums of rows; None if not linear."""
        return self.factors(queries, keys) if self.is_linear else None

    def terms(self, query: Queries, key: Keys) -> Terms | None:
        query, key, scale = self.factors(query, key)
        return Terms("dot", query * key, query, key, scale)

    @property
    def alike_for_heads(self) -> bool:
        # A score of the caller's may hold any tensor.
        is_ours = type(self).__module__.startswith(__package__)
        return is_ours and not isinstance(self, nn.Module)

    def is_itself(self) -> bool:
        return is_dots(self)

    def with_parameters(self, change: Change) -> PairScore | None:
        return self if self.alike_for_heads else None

    def prepare_both(self, query: Queries, key: Keys) -> tuple[Score, Tensor, Tensor]:
        query, key, scale = self.factors(query, key)
        return ScaledDot(scale), query, key

    def __call__(self, query: Queries, key: Keys, /) -> Scores:
        query, key, scale = self.factors(query, key)
        return dots(query if scale == 1.0 else query * scale, key)


@dataclass(frozen=True)
class Dot(DotLike, name="dot"):
    """The dot product q . k (Luong et al. 2015, arXiv 1508.04025, equation 8).

    Example:
        >>> import torch
        >>> Dot()(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0], [0.0, 1.0]]))
        tensor([[11.,  2.]])
    """

    is_linear = True

    def factors(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, float]:
        _check_widths(query.shape, key.shape)
        return query, key, 1.0

    def cost_options(self) -> dict[str, Any]:
        """The options that count its products in `regard.costs.parts.attention`."""
        return {"score": "dot"}

    def prepare_both(self, query: Tensor, key: Tensor) -> tuple[Score, Tensor, Tensor]:
        return self, query, key


@dataclass(frozen=True)
class ScaledDot(DotLike, name="scaled_dot"):
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
    is_linear = True

    def __post_init__(self) -> None:
        if self.scale is not None:
            _check_scale(self.scale)

    def factors(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, float]:
        shape = query.shape
        _check_widths(shape, key.shape)
        width = shape[-1]
        scale = self.scale if self.scale is not None else width**-0.5 if width else 1.0
        return query, key, scale

    def cost_options(self) -> dict[str, Any]:
        return {"score": "scaled_dot"}

    def prepare_both(self, query: Tensor, key: Tensor) -> tuple[Score, Tensor, Tensor]:
        return self, query, key


@dataclass(frozen=True)
class Cosine(DotLike, name="cosine"):
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
        _check_widths(query.shape, key.shape)
        return unit(query), unit(key), self.scale

    def split(self, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor, float]:
        query, key = (each / each.sum(0).norm() for each in (queries, keys))
        return query, key, self.scale

    def cost_options(self) -> dict[str, Any]:
        return {"score": "cosine"}

    def prepare(self, key: Tensor) -> tuple[Score, Tensor]:
        return (PreparedCosine(self.scale), unit(key)) if type(self) is Cosine else (self, key)


@dataclass(frozen=True)
class PreparedCosine(DotLike):
    """A cosine whose keys have length 1 already."""

    scale: float

    def factors(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, float]:
        _check_widths(query.shape, key.shape)
        return unit(query), key, self.scale


SHORTEST = 1e-12


def unit(vectors: Float[Tensor, "*batch length width"]) -> Float[Tensor, "*batch length width"]:
    """Every vector divided by its length; zeros, without a gradient, where it is too short for that.

    Half precisions are divided in float32: neither the shortest nor the longest length fits them.
    """
    wide = widen(vectors)
    length = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
    unit: Tensor = wide / torch.threshold(length, SHORTEST, torch.inf)
    return unit.to(vectors.dtype)


def is_dots(score: object) -> TypeGuard[DotLike]:
    """Whether a score is the dot product of its `factors`: no method, attribute or hook replaces its call."""
    kind: Any = type(score)
    if DotLike not in kind.__mro__:  # isinstance of an abstract class takes three times as long
        return False
    if not isinstance(score, nn.Module):
        return bool(kind.__call__ is DotLike.__call__)
    replaced = kind.__call__ is not nn.Module.__call__ or vars(score).get("forward")
    return not replaced and kind.forward is DotLike.__call__ and not is_hooked(score)


def is_hooked(module: nn.Module) -> bool:
    """Whether a module has hooks of its own; those for all modules, as of `regard.watch`, do not count."""
    state = vars(module)
    return bool(
        state["_forward_hooks"]
        or state["_forward_pre_hooks"]
        or state["_backward_hooks"]
        or state["_backward_pre_hooks"]
    )


def pairwise(score: object) -> PairScore | None:
    """The score, where it is one of a query and a key alone and nothing replaces its computation."""
    return score if isinstance(score, PairScore) and score.is_itself() else None


def with_parameters(score: object, change: Change) -> PairScore | None:
    """The score with other parameters; None for one of the caller's, which may hide some."""
    pair_score = pairwise(score)
    return None if pair_score is None else pair_score.with_parameters(change)


def prepare(
    score: Score, key: Float[Tensor, "*#batch keys d_key"]
) -> tuple[Score, Float[Tensor, "... keys d_prepared"]]:
    """A score and keys that give the same scores with less work for each query.

    prepared_score(query, prepared_key) = score(query, key). Gradients flow through both. Of additive scores the
    prepared score keeps e^(2 prepared_key) as well, from the first single query on, where no gradients are recorded.

    Args:
        score: any score; one that does no work on its keys comes back as it is.
        key: the keys that will be read many times.

    Returns:
        The prepared score and the prepared keys.

    Example:
        >>> import torch
        >>> from regard.scores import Additive
        >>> score, key, query = Additive(3, 5, 8), torch.ones(4, 5), torch.ones(1, 3)
        >>> quick, prepared = prepare(score, key)
        >>> torch.allclose(quick(query, prepared), score(query, key))
        True
    """
    pair_score = pairwise(score)
    return (score, key) if pair_score is None else pair_score.prepare(key)


def prepare_both(
    score: Score, query: Queries, key: Keys
) -> tuple[Score, Float[Tensor, "... queries d_left"], Float[Tensor, "... keys d_right"]]:
    """The same with the work on the queries done too, for repeated use of the same queries and keys.

    prepared_score(prepared_query, prepared_key) = score(query, key). Gradients flow through all.

    Example:
        >>> import torch
        >>> from regard.scores import Cosine
        >>> query, key = torch.tensor([[3.0, 4.0]]), torch.tensor([[6.0, 8.0], [0.0, 2.0]])
        >>> score, query, key = prepare_both(Cosine(), query, key)
        >>> score, key.tolist()
        (ScaledDot(scale=1.0), [[0.6000000238418579, 0.800000011920929], [0.0, 1.0]])
    """
    pair_score = pairwise(score)
    return (score, query, key) if pair_score is None else pair_score.prepare_both(query, key)


def unchanged(score: object, kind: type, *methods: str) -> bool:
    """Whether `score` is of this kind, and no subclass, attribute or hook replaces these methods.

    Example:
        >>> unchanged(Dot(), Dot, "__call__")
        True
    """
    subclass = type(score)
    if not isinstance(score, kind):
        return False
    if any(getattr(subclass, method) is not getattr(kind, method) for method in methods):
        return False
    if not isinstance(score, nn.Module):
        return True
    return not is_hooked(score) and not any(method in vars(score) for method in methods)


def _check_widths(query: Shape, key: Shape) -> None:
    """Refuse query and key widths that a dot product cannot join."""
    if query[-1] != key[-1]:
        raise ShapeError(
            f"query is {query[-1]} wide, key is {key[-1]} wide: a dot product needs equal widths;"
            f" pass a key of shape [..., {key[-2]}, {query[-1]}], or score=General or Additive"
        )


def _check_scale(scale: object) -> None:
    learned = "multiply the query by it before a score with scale=1.0"
    check_number("scale", scale, f"for one that is learned, {learned}")
