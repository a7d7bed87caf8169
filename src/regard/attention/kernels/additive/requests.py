"""Which requests the kernels for additive scores can serve."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from regard.attention.kernels.request import Request, name_of
from regard.attention.normalisers import Softmax
from regard.attention.scores import Additive, SoftCap
from regard.attention.scores.prepare import PreparedAdditive, is_additive, is_cap
from regard.loops.availability import differentiated


def refuse(request: Request, value: Tensor) -> str | None:
    """Why this is no softmax over additive scores; None when it is."""
    score = within(request.score)
    changed = isinstance(score, SoftCap) and not is_cap(score)
    if changed or (isinstance(score, Additive) and not is_additive(score)):
        return f"{name_of(score)} has methods or hooks of its own: only a call of it is exact"
    if not isinstance(score, Additive | PreparedAdditive):
        return f"{name_of(score)} is not an additive score"
    if type(request.normaliser) is not Softmax:
        return f"{name_of(request.normaliser)} is not a softmax"
    if request.dropout:
        return "it has no dropout"
    if differentiated():
        return "it has gradients for torch.autograd only: pin regard.kernel('blocked')"
    sizes = (request.query, request.key, value, score.weight)
    if not all(tensor.numel() for tensor in sizes):
        return "an axis has size 0"
    return None


def within(score: object) -> Any:
    """The score that is capped, or the score itself."""
    return score.score if isinstance(score, SoftCap) and is_cap(score) else score


def features(
    score: Additive | PreparedAdditive, query: Tensor, key: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """a, c and w of an additive score: the features of the queries and keys, and the weight."""
    return score.query_features(query), score.key_features(key), score.weight


def cap_of(score: object) -> float:
    """The cap of a score, 0 where it has none."""
    return score.cap if isinstance(score, SoftCap) else 0.0
