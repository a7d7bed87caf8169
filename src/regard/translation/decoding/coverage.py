"""The coverage penalty: prefer translations that have looked at the whole source."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.translation.decoding.forced import looks
from regard.translation.decoding.hypothesis import Hypothesis
from regard.translation.errors import ConfigurationError
from regard.translation.models.protocol import Looks, TranslationModel

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

    p_ij is the weight of source word i while target word j is written: the last decoder layer's,
    the mean of its heads. Wu et al. 2016 (arXiv 1609.08144), equation 14; beta is our `weight`.

    Raises:
        ConfigurationError: the model looks at no source.
    """
    each = [sentence for sentence, hypotheses in enumerate(found) for _ in hypotheses]
    flat = [one for hypotheses in found for one in hypotheses]
    if not flat:
        return [[] for _ in found]
    rows = torch.tensor(each, device=source.device)
    at_source = looks(model, source[rows], lengths[rows], [one.tokens for one in flat])
    written = torch.tensor([len(one.tokens) + 1 for one in flat], device=source.device)
    covered = coverage(_last_cross(at_source), written, lengths[rows]).tolist()
    again: list[list[Hypothesis]] = [[] for _ in found]
    for sentence, one, bonus in zip(each, flat, covered, strict=True):
        again[sentence].append(replace(one, score=one.score + weight * bonus))
    return [sorted(hypotheses, key=lambda one: -one.score) for hypotheses in again]


def coverage(
    weights: Float[Tensor, "batch queries keys"],
    written: Int[Tensor, " batch"],
    lengths: Int[Tensor, " batch"],
) -> Float[Tensor, " batch"]:
    """sum_i log(min(sum_j p_ij, 1)) over real queries and keys; 0 when each key got its fill."""
    steps = torch.arange(weights.shape[1], device=weights.device) < written[:, None]
    words = torch.arange(weights.shape[2], device=weights.device) < lengths[:, None]
    received = weights.float().masked_fill(~steps.unsqueeze(2), 0).sum(1).clamp(_LEAST, 1)
    return received.log().masked_fill(~words, 0).sum(1)


def _last_cross(found: Looks) -> Float[Tensor, "batch queries keys"]:
    names = {
        int(match[1]): name
        for name in found
        if (match := re.fullmatch(r"decoder\.(\d+)\.cross", name))
    }
    if not names:
        raise ConfigurationError(
            "coverage_penalty: this model does not look at the source; leave it at 0"
        )
    return found[names[max(names)]].weights().mean(1)
