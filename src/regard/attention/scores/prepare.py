"""A score's work on single queries and keys, done once before all pairs."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.scores.named import SoftCap
from regard.attention.scores.parametric import Additive, General, check_width, project
from regard.attention.scores.score import (
    Cosine,
    Dot,
    DotLike,
    Keys,
    Queries,
    ScaledDot,
    Score,
    unit,
)
from regard.attention.shapes import check_widths

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def unchanged(score: object, kind: type, *methods: str) -> bool:
    """Whether `score` is of this kind, and no subclass, attribute or hook replaces these methods.

    Hooks are those of the module itself. Hooks for all modules, as profilers and `regard.watch`
    register them, do not count.

    Example:
        >>> from regard.scores import Dot
        >>> unchanged(Dot(), Dot, "__call__")
        True
    """
    own = type(score)
    if not isinstance(score, kind):
        return False
    if own is not kind and any(getattr(own, m) is not getattr(kind, m) for m in methods):
        return False
    if not isinstance(score, nn.Module):
        return True
    hooked = any(getattr(score, hooks) for hooks in HOOKS)
    return not hooked and not any(method in vars(score) for method in methods)


@dataclass(frozen=True)
class PreparedAdditive:
    """An additive score whose keys are W_k k already, and its queries W_q q + b if `projected`."""

    score: Additive
    projected: bool = False

    @property
    def d_hidden(self) -> int:
        return self.score.d_hidden

    @property
    def weight(self) -> Tensor:
        return self.score.weight

    def query_features(self, query: Tensor) -> Tensor:
        return query if self.projected else self.score.query_features(query)

    def key_features(self, key: Tensor) -> Tensor:
        return key

    def __call__(self, query: Tensor, key: Tensor, /) -> Tensor:
        return self.score.combine(self.query_features(query), key)


@dataclass(frozen=True)
class PreparedCosine(DotLike):
    """A cosine whose keys have length 1 already."""

    scale: float

    def factors(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, float]:
        check_widths(query.shape, key.shape)
        return unit(query), key, self.scale


def is_dots(score: object) -> bool:
    """Whether a score is the dot product of its `factors`."""
    if isinstance(score, General):
        return unchanged(score, General, "__call__", "forward")
    return unchanged(score, DotLike, "__call__")


def is_additive(score: object) -> bool:
    """Whether a score combines its query and key features as `Additive` does."""
    return unchanged(score, Additive, "__call__", "forward", "combine")


def is_cap(score: object) -> bool:
    """Whether a score bounds another as `SoftCap` does."""
    return unchanged(score, SoftCap, "__call__", "forward")


def is_pairwise(score: object) -> bool:
    """Whether a score is ours, so that it depends on the numbers of one query and one key alone."""
    while isinstance(score, SoftCap) and is_cap(score):
        score = score.score
    return is_dots(score) or is_additive(score) or isinstance(score, PreparedAdditive)


def is_plain(score: object) -> bool:
    """Whether a score is a dot product of ours that owns no parameters."""
    ours = isinstance(score, DotLike) and not isinstance(score, nn.Module)
    return ours and type(score).__module__.startswith("regard.")


def prepare(
    score: Score, key: Float[Tensor, "*#batch keys d_key"]
) -> tuple[Score, Float[Tensor, "... keys d_prepared"]]:
    """A score and keys that give the same scores with less work for each query.

    prepared_score(query, prepared_key) = score(query, key). Gradients flow through both.

    Args:
        score: any score; one that does no work on its keys comes back as it is.
        key: the keys that will be read many times.

    Returns:
        The prepared score and the prepared keys.

    Example:
        >>> import torch
        >>> score, key, query = Additive(3, 5, 8), torch.ones(4, 5), torch.ones(1, 3)
        >>> quick, prepared = prepare(score, key)
        >>> torch.allclose(quick(query, prepared), score(query, key))
        True
    """
    match score:
        case Additive() if is_additive(score):
            return PreparedAdditive(score), score.key_features(key)
        case General() if unchanged(score, General, "__call__", "forward", "factors"):
            check_width("General", "key", key, score.d_key)
            return Dot(), project(key, score.weight)
        case Cosine() if type(score) is Cosine:
            return PreparedCosine(score.scale), unit(key)
        case SoftCap() if is_cap(score):
            inner, prepared = prepare(score.score, key)
            return SoftCap(inner, score.cap), prepared
        case _:
            return score, key


def prepare_both(
    score: Score, query: Queries, key: Keys
) -> tuple[Score, Float[Tensor, "... queries d_left"], Float[Tensor, "... keys d_right"]]:
    """The same with the work on the queries done too, for repeated use of the same queries and keys.

    prepared_score(prepared_query, prepared_key) = score(query, key). Gradients flow through all.

    Example:
        >>> import torch
        >>> query, key = torch.tensor([[3.0, 4.0]]), torch.tensor([[6.0, 8.0], [0.0, 2.0]])
        >>> score, query, key = prepare_both(Cosine(), query, key)
        >>> score, key.tolist()
        (ScaledDot(scale=1.0), [[0.6000000238418579, 0.800000011920929], [0.0, 1.0]])
    """
    match score:
        case Dot() | ScaledDot():
            return score, query, key
        case DotLike() if is_dots(score):
            query, key, scale = score.factors(query, key)
            return ScaledDot(scale), query, key
        case Additive() if is_additive(score):
            query, key = score.query_features(query), score.key_features(key)
            return PreparedAdditive(score, projected=True), query, key
        case SoftCap() if is_cap(score):
            inner, query, key = prepare_both(score.score, query, key)
            return SoftCap(inner, score.cap), query, key
        case _:
            return score, query, key
