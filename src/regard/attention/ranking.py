"""The best few of many, equals in the order in which they stand."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.loops.availability import transformed


def top(
    values: Float[Tensor, "*rows many"], count: int
) -> tuple[Float[Tensor, "*rows few"], Int[Tensor, "*rows few"]]:
    """The `count` greatest of each row and where they stand, of equals the first first; all, if there are fewer.

    torch.topk leaves open which of several equals it returns; in bfloat16 equals are common.
    Places with -inf may come in any order.
    """
    many = values.shape[-1]
    if count >= many or transformed():  # a transform hides whether there are equals
        best, where = values.sort(dim=-1, descending=True, stable=True)
        return best[..., :count], where[..., :count]
    if count == 1:
        return values.max(-1, keepdim=True)
    best, where = values.topk(count + 1, dim=-1)
    tied = ((best[..., 1:] == best[..., :-1]) & (best[..., 1:] > -torch.inf)).any(-1)
    if bool(tied.any()):
        order = values[tied].sort(dim=-1, descending=True, stable=True).indices
        where[tied] = order[:, : count + 1]
    return best[..., :count], where[..., :count]
