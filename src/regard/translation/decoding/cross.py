"""What finished translations looked at in their sources, one matrix each."""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import ConfigurationError
from regard.translation.decoding.forced import looks
from regard.translation.decoding.hypothesis import Hypothesis
from regard.translation.models.protocol import Looks, TranslationModel

# "decoder.2.cross", or of one model of an ensemble "0.decoder.2.cross"
_CROSS = re.compile(r"(?:(\d+)\.)?decoder\.(\d+)\.cross")


def cross(
    model: TranslationModel,
    source: Int[Tensor, "batch source"],
    lengths: Int[Tensor, " batch"],
    found: Sequence[Sequence[Hypothesis]],
) -> list[list[Float[Tensor, "written source"]]]:
    """How much each token of each hypothesis, its end last, looked at each token of its source.

    The hypotheses are forced once, all of them together: a search that kept the weights of every
    beginning at every step would pay for the many that it drops. See `last_cross` for which weights.

    Returns:
        A matrix for each hypothesis, without padding.

    Raises:
        ConfigurationError: the model looks at no source.
    """
    counts = [len(hypotheses) for hypotheses in found]
    flat = [one for hypotheses in found for one in hypotheses]
    if not flat:
        return [[] for _ in found]
    rows = torch.arange(len(found)).repeat_interleave(torch.tensor(counts)).to(source.device)
    with torch.no_grad():  # a look may work out its weights only now
        given = looks(model, source[rows], lengths[rows], [one.tokens for one in flat])
        weights = last_cross(given)
    if weights is None:
        raise ConfigurationError(
            "this model does not look at the source: it has no alignments and no coverage penalty"
        )
    sizes = zip(weights, flat, lengths[rows].tolist(), strict=True)
    each = iter([matrix[: len(one.tokens) + 1, :size] for matrix, one, size in sizes])
    return [[next(each) for _ in hypotheses] for hypotheses in found]


def last_cross(found: Looks) -> Float[Tensor, "batch queries keys"] | None:
    """The mean of the heads of the last layer that looks at the source; of several models, their mean."""
    last: dict[str, tuple[int, str]] = {}
    for name in found:
        match = _CROSS.fullmatch(name)
        if match:
            model = match[1] or ""
            last[model] = max(last.get(model, (-1, "")), (int(match[2]), name))
    if not last:
        return None
    each = [found[name].weights().float().mean(1) for _, name in last.values()]
    return torch.stack(each).mean(0)
