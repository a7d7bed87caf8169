"""The work on the keys done once, for decoders that read one memory at every step."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from regard.attention.scores.additive import Additive
from regard.attention.scores.cap import SoftCap
from regard.attention.scores.dot import Cosine, Dot, DotLike
from regard.attention.scores.general import General
from regard.attention.scores.parameters import check_width, project
from regard.attention.scores.protocol import Score
from regard.attention.shapes import check_widths


@dataclass(frozen=True)
class PreparedAdditive:
    """An additive score whose keys are W_k k already."""

    score: Additive

    def __call__(self, query: Tensor, key_features: Tensor, /) -> Tensor:
        return self.score.combine(self.score.query_features(query), key_features)


@dataclass(frozen=True)
class PreparedCosine(DotLike):
    """A cosine whose keys have length 1 already."""

    scale: float

    def factors(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, float]:
        check_widths(query.shape, key.shape)
        return F.normalize(query, dim=-1), key, self.scale


def prepare(
    score: Score, key: Float[Tensor, "*batch keys d_key"]
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
        case Additive():
            return PreparedAdditive(score), score.key_features(key)
        case General():
            check_width("General", "key", key, score.d_key)
            return Dot(), project(key, score.weight)
        case Cosine():
            return PreparedCosine(score.scale), F.normalize(key, dim=-1)
        case SoftCap():
            inner, prepared = prepare(score.score, key)
            return SoftCap(inner, score.cap), prepared
        case _:
            return score, key
