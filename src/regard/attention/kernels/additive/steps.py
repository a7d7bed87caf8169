"""A recurrent decoder's step: one query of each sentence against keys that all its steps read.

It is computed by powers (see `scores.powers`), with gradients, and without a request. For 64 sentences of 30 words it
is 2.4 times as fast as eager torch (benchmarks/additive.py, part "steps").
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.attention.normalisers import Normaliser, Softmax
from regard.attention.products import HALVES
from regard.attention.scores import Additive, Score
from regard.attention.scores.parametric import PreparedAdditive
from regard.attention.scores.powers import (
    are_in_reach,
    minus_half,
    powers_of,
    relative_scores,
    tanh_minus_one,
)
from regard.loops.availability import differentiated, transformed

HIGHEST = 2.0**124  # with keys in reach u is above -2^-62 from this e^(2a) on
# Numbers of keys up to which tanh is as fast, with gradients and without: the calls take the time.
FEW = {True: 1 << 16, False: 1 << 12}


@dataclass(frozen=True)
class StepAdditive(PreparedAdditive):
    """An additive score for single queries. Its keys are e^(2 W_k k), or W_k k where there is no `start`."""

    start: Tensor | None = None  # `minus_half`

    def key_features(self, key: Tensor) -> Tensor:
        """W_k k."""
        return key if self.start is None else key.log() / 2

    def __call__(self, query: Tensor, key: Tensor, /) -> Tensor:
        return self.score.combine(self.query_features(query), self.key_features(key))


def prepare_steps(
    score: Score,
    key: Float[Tensor, "batch keys d_hidden"],
    normaliser: Normaliser,
    readable: Bool[Tensor, "batch 1 keys"] | None,
) -> tuple[Score, Float[Tensor, "batch keys d_hidden"]]:
    """A score and keys for `attend_step`; as they are where that would not be exact.

    Args:
        score: the score and
        key: the keys, as `regard.scores.prepare` returns them.
        normaliser: what turns scores into weights.
        readable: True where a key may be read; each entry of the batch needs one such key.
    """
    if type(score) is not PreparedAdditive or normaliser != Softmax() or score.weight.ndim > 1:
        return score, key
    if key.dtype in HALVES or torch.is_autocast_enabled(key.device.type):
        return score, key
    if transformed() or differentiated() or not key.numel():
        return score, key
    exact = are_in_reach(key)
    if readable is not None:
        exact &= readable.any(-1).all()
    if not exact:
        return score, key
    trains = torch.is_grad_enabled() and (key.requires_grad or _has_gradients(score.score))
    if key.numel() <= FEW[trains]:
        return StepAdditive(score.score), key
    return StepAdditive(score.score, start=minus_half(key)), powers_of(key)


def _has_gradients(score: Additive) -> bool:
    return any(parameter.requires_grad for parameter in score.parameters())


def attend_step(
    query: Float[Tensor, "batch 1 d_query"],
    key: Float[Tensor, "batch keys d_hidden"],
    value: Float[Tensor, "batch keys d_value"],
    *,
    score: StepAdditive,
    mask: Bool[Tensor, "batch 1 keys"] | None = None,
) -> Float[Tensor, "batch 1 d_value"]:
    """`regard.attend` for one query of each batch entry, with a score and keys of `prepare_steps`."""
    if score.start is None:
        hidden = (score.query_features(query) + key).tanh_()
        scores = torch.matmul(hidden, score.weight).unsqueeze(1)
    else:
        weight = score.weight
        scores = _scores(
            _twice_query_features(score.score, query, weight), key, weight, score.start
        )
    if mask is not None:
        scores = torch.where(mask, scores, -torch.inf)
    return torch.bmm(torch.softmax(scores, -1), value)


def _twice_query_features(score: Additive, query: Tensor, blank: Tensor) -> Tensor:
    """2 (W_q q + b), (batch, 1, d_hidden), as one product; `blank` stands for a bias that is missing."""
    bias, beta = (blank, 0) if score.bias is None else (score.bias, 2)
    features = torch.addmm(bias, query.squeeze(1), score.query_weight.mT, beta=beta, alpha=2)
    return features.unsqueeze(1)


def _scores(twice_a: Tensor, powers: Tensor, w: Tensor, start: Tensor) -> Tensor:
    """The scores but for what all keys have in common, which a softmax does not see, (batch, 1, keys)."""
    if torch.is_grad_enabled() and (
        twice_a.requires_grad or powers.requires_grad or w.requires_grad
    ):
        scores: Tensor = _Scores.apply(twice_a, powers, w, start)  # type: ignore[no-untyped-call]
        return scores
    return relative_scores(twice_a.exp_(), powers, w, start)


class _Scores(torch.autograd.Function):
    """s = sum of w u; with A = e^(2a), C = e^(2c):  ds/d2a = -w (u + u^2 / 2),  ds/dC = w A u^2 / 2,  ds/dw = u."""

    @staticmethod
    def forward(ctx: Any, twice_a: Tensor, powers: Tensor, w: Tensor, start: Tensor) -> Tensor:
        powers_of_a = twice_a.exp()
        u = tanh_minus_one(powers_of_a, powers, start)
        ctx.save_for_backward(u, powers_of_a, w)
        return torch.matmul(u, w).unsqueeze(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> Any:
        u, powers_of_a, w = ctx.saved_tensors
        squares, half_w = u * u, w / 2
        for_a = torch.baddbmm(upstream @ u, upstream, squares, beta=-2, alpha=-1).mul_(half_w)
        for_w = torch.mv(u.flatten(0, -2).mT, upstream.flatten())
        # Where A is infinite u is 0, and 0 times infinity is no number.
        factor = powers_of_a.clamp(max=HIGHEST).mul_(half_w)
        return for_a, squares.mul_(upstream.mT).mul_(factor), for_w, None
