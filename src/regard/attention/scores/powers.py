"""Additive scores by powers of e, for keys that are read many times.

    tanh(a + c) = 1 + u,   u = -2 / (1 + e^(2a) e^(2c))

a is the query through W_q, c the keys through W_k (Bahdanau et al. 2015, arXiv 1409.0473, A.1.2). e^(2c) is computed
once for all queries, so that each takes a product, a sum and a quotient for each key and channel, and no tanh.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.attention.products import HALVES
from regard.attention.shapes import Frame
from regard.loops.availability import followed, has_numbers

REACH = 20.79  # e^(2 REACH) is 2^60: keys beyond it are left as they are
ROOM = 1 << 17  # numbers of u that stay in the second-level cache
FEW = 1 << 13  # numbers of keys up to which tanh is faster: it takes fewer calls of torch


def are_in_reach(key: Tensor) -> Bool[Tensor, ""]:
    """Whether powers of these keys are exact; not so if a number is NaN."""
    smallest, largest = key.detach().aminmax()
    return (smallest >= -REACH) & (largest <= REACH)


def powers_of(features: Tensor) -> Tensor:
    """e^(2c)."""
    return features.mul(2).exp_()


def minus_half(like: Tensor) -> Float[Tensor, ""]:
    """The number that `tanh_minus_one` begins with."""
    return like.new_full((), -0.5)


def tanh_minus_one(powers_of_a: Tensor, powers: Tensor, start: Float[Tensor, ""]) -> Tensor:
    """u, of each key and channel; 0 where e^(2a) is infinite. `start` is `minus_half`."""
    return torch.addcmul(start, powers_of_a, powers, value=-0.5).reciprocal_()


def relative_scores(
    powers_of_a: Float[Tensor, "batch 1 d_hidden"],
    powers: Float[Tensor, "batch keys d_hidden"],
    w: Float[Tensor, " d_hidden"],
    start: Float[Tensor, ""],
) -> Float[Tensor, "batch 1 keys"]:
    """The sum of w u, which is the score without the sum of w, in strips that stay in the cache."""
    batch, keys, channels = powers.shape
    rows = max(1, ROOM // max(1, keys * channels))
    if batch <= rows:
        return torch.matmul(tanh_minus_one(powers_of_a, powers, start), w).unsqueeze(1)
    strips = zip(powers_of_a.split(rows), powers.split(rows), strict=True)
    scores = [torch.matmul(tanh_minus_one(*strip, start), w) for strip in strips]
    return torch.cat(scores).unsqueeze(1)


class KeptPowers:
    """The powers of prepared keys, for single queries without gradients.

    Attributes:
        frame: the scores of one query of each batch entry.
    """

    def __init__(self, key: Tensor) -> None:
        batch, keys, channels = key.shape
        self.frame = Frame((batch,), 1, keys, key.device)
        self._key, self._version, self._shape = key, -1, (batch, 1, channels)
        self._are_few = key.numel() <= FEW
        self._powers: tuple[Tensor, Tensor] | None = None  # and `minus_half`

    def serves(self, key: Tensor) -> bool:
        """Whether these are the keys, and torch follows no operation."""
        return key is self._key and not (torch.is_grad_enabled() or followed())

    def scores(self, features: Tensor, weight: Tensor) -> Float[Tensor, "batch 1 keys"] | None:
        """w . tanh(a + c); None where these are no queries, one of each batch entry, in the precision of the keys."""
        scores = self.relative_scores(features, weight)
        return scores if scores is None or self._powers is None else scores + weight.sum()

    def relative_scores(
        self, features: Tensor, weight: Float[Tensor, " d_hidden"]
    ) -> Float[Tensor, "batch 1 keys"] | None:
        """The same, perhaps without a number that all keys have in common, which a softmax does not see."""
        key = self._key
        if features.shape != self._shape or features.dtype != key.dtype:
            return None
        if not self._are_few and self._version != key._version:
            self._powers = (powers_of(key), minus_half(key)) if are_in_reach(key) else None
            self._version = key._version
        if self._powers is None:
            return torch.matmul((features + key).tanh_(), weight).unsqueeze(1)
        powers, start = self._powers
        return relative_scores(powers_of(features), powers, weight, start)


def kept_powers(key: Tensor) -> KeptPowers | None:
    """The powers of keys, where they may be kept: on a processor and without gradients."""
    if not has_numbers(key) or key.ndim != 3 or key.dtype in HALVES:
        return None
    return None if key.requires_grad or key.is_inference() else KeptPowers(key)
