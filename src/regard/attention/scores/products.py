"""The two matrix products of attention, for batch axes that broadcast.

torch.matmul expands an axis of size 1 and copies it; einsum folds it into the rows instead.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def dots(
    query: Float[Tensor, "*#batch queries width"], key: Float[Tensor, "*#batch keys width"]
) -> Float[Tensor, "... queries keys"]:
    """Every query's dot product with every key."""
    if query.shape[:-2] == key.shape[:-2]:
        return query @ key.mT
    return torch.einsum("...qd,...kd->...qk", query, key)


def blend(
    weights: Float[Tensor, "*#batch queries keys"], value: Float[Tensor, "*#batch keys d_value"]
) -> Float[Tensor, "... queries d_value"]:
    """The values, summed with these weights."""
    if weights.shape[:-2] == value.shape[:-2]:
        return weights @ value
    return torch.einsum("...qk,...kd->...qd", weights, value)
