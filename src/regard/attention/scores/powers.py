"""Additive scores by powers of e, for keys that are read many times.

    tanh(a + c) = 1 - 2 r,   r = 1 / (1 + e^(2a) e^(2c))

a is the query through W_q, c the keys through W_k (Bahdanau et al. 2015, arXiv 1409.0473, A.1.2). e^(2c) is computed
once for all queries, so that each takes a product, a sum and a quotient for each key and channel, and no tanh.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.attention.products import HALVES
from regard.loops.availability import followed, has_numbers

REACH = 20.79  # e^(2 REACH) is 2^60: keys beyond it are left as they are
ROOM = 1 << 17  # numbers of r that stay in the second-level cache
FEW = 1 << 14  # numbers of keys up to which tanh is as fast: the calls take the time


def are_in_reach(key: Tensor) -> Bool[Tensor, ""]:
    """Whether powers of these keys are exact; not so if a number is NaN."""
    smallest, largest = key.detach().aminmax()
    return (smallest >= -REACH) & (largest <= REACH)


def powers_of(features: Tensor) -> Tensor:
    """e^(2c)."""
    return features.mul(2).exp_()


def reciprocals(powers_of_a: Tensor, powers: Tensor) -> Tensor:
    """r, of each key and channel; 0 where e^(2a) is infinite."""
    return torch.addcmul(powers.new_ones(()), powers_of_a, powers).reciprocal_()


def reciprocal_sums(
    powers_of_a: Float[Tensor, "batch 1 d_hidden"],
    powers: Float[Tensor, "batch keys d_hidden"],
    w: Float[Tensor, " d_hidden"],
) -> Float[Tensor, "batch 1 keys"]:
    """The sum of w r, in strips that stay in the cache."""
    batch, keys, channels = powers.shape
    rows = max(1, ROOM // max(1, keys * channels))
    if batch <= rows:
        return torch.matmul(reciprocals(powers_of_a, powers), w).unsqueeze(1)
    strips = zip(powers_of_a.split(rows), powers.split(rows), strict=True)
    return torch.cat([torch.matmul(reciprocals(*strip), w) for strip in strips]).unsqueeze(1)


class KeptPowers:
    """The powers of prepared keys, from the second query on that reads them."""

    def __init__(self, key: Tensor) -> None:
        self.key = key
        self._version, self._reads = -1, 0
        self._powers: Tensor | None = None

    def scores(self, features: Tensor, key: Tensor, weight: Tensor) -> Tensor | None:
        """w . tanh(a + c) for one query of each batch entry; None where tanh is as fast, or asked for."""
        if key is not self.key or key.numel() <= FEW:
            return None
        if features.shape != (len(key), 1, key.shape[-1]):
            return None
        if followed() or type(features) is not Tensor or features.dtype != key.dtype:
            return None
        if torch.is_grad_enabled() and (features.requires_grad or weight.requires_grad):
            return None
        powers = self._kept()
        if powers is None:
            return None
        weight = weight.to(powers.dtype)
        return reciprocal_sums(powers_of(features), powers, -2 * weight) + weight.sum()

    def _kept(self) -> Tensor | None:
        if self._version != self.key._version:
            self._version, self._reads, self._powers = self.key._version, 0, None
        self._reads += 1
        if self._reads == 2 and are_in_reach(self.key):
            self._powers = powers_of(self.key)
        return self._powers


def kept_powers(key: Tensor) -> KeptPowers | None:
    """The powers of keys, where they may be kept: on a processor and without gradients."""
    if not has_numbers(key) or key.ndim != 3 or key.dtype in HALVES:
        return None
    return None if key.requires_grad or key.is_inference() else KeptPowers(key)
