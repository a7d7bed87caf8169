"""The coverage penalty: prefer translations that have looked at the whole source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from jaxtyping import Float, Int
from torch import Tensor

from regard.translation.decoding.cross import cross
from regard.translation.decoding.hypothesis import Hypothesis
from regard.translation.models.protocol import TranslationModel

# A source word that nothing looked at costs log of this, not infinity: sparse weights can be 0.
_LEAST = 1e-6


def rerank(
    model: TranslationModel,
    source: Int[Tensor, "batch source"],
    lengths: Int[Tensor, " batch"],
    found: Sequence[Sequence[Hypothesis]],
    weight: float,
) -> list[list[Hypothesis]]:
    """Hypotheses ranked anew by score + beta sum_i log(min(sum_j p_ij, 1)).

    p_ij is the weight of source word i while target word j is written (see `cross.last_cross`).
    Wu et al. 2016 (arXiv 1609.08144), equation 14; beta is our `weight`.

    Raises:
        ConfigurationError: the model looks at no source.
    """
    weights = cross(model, source, lengths, found)
    return [
        sorted(
            (
                replace(one, score=one.score + weight * coverage(matrix))
                for one, matrix in zip(hypotheses, matrices, strict=True)
            ),
            key=lambda one: -one.score,
        )
        for hypotheses, matrices in zip(found, weights, strict=True)
    ]


def coverage(weights: Float[Tensor, "written source"]) -> float:
    """sum_i log(min(sum_j p_ij, 1)) over the source words i; 0 when each got its fill."""
    return float(weights.sum(0).clamp(_LEAST, 1).log().sum())
