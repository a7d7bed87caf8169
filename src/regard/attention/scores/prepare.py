"""A score's work on single queries and keys, done once before all pairs."""

from jaxtyping import Float
from torch import Tensor

from regard.attention.scores.parametric import PreparedAdditive
from regard.attention.scores.score import Keys, PreparedCosine, Queries, Score, is_dots, pairwise

__all__ = [
    "PreparedAdditive",
    "PreparedCosine",
    "is_dots",
    "is_pairwise",
    "prepare",
    "prepare_both",
]


def is_pairwise(score: object) -> bool:
    """Whether a score depends on the numbers of one query and one key alone."""
    return pairwise(score) is not None


def prepare(
    score: Score, key: Float[Tensor, "*#batch keys d_key"]
) -> tuple[Score, Float[Tensor, "... keys d_prepared"]]:
    """A score and keys that give the same scores with less work for each query.

    prepared_score(query, prepared_key) = score(query, key). Gradients flow through both. Of additive scores the
    prepared score keeps e^(2 prepared_key) as well, from the second single query on, where no gradients are recorded.

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
