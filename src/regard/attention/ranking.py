"""The best few of many, equals in the order in which they stand."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.loops.availability import transformed

LINES, LONG = 8, 2048  # lines that a long row is folded into


def top(
    values: Float[Tensor, "*rows many"], count: int
) -> tuple[Float[Tensor, "*rows few"], Int[Tensor, "*rows few"]]:
    """The `count` greatest of each row and where they stand, of equals the first first; all, if there are fewer.

    torch.topk leaves open which of several equals it returns; in bfloat16 equals are common.
    Places with -inf may come in any order.
    """
    length = values.shape[-1]
    if count >= length or transformed():  # a transform hides whether there are equals
        best, where = values.sort(dim=-1, descending=True, stable=True)
        return best[..., :count], where[..., :count]
    if count == 1:
        return values.max(-1, keepdim=True)
    best, where = _best(values, count + 1)
    tied = ((best[..., 1:] == best[..., :-1]) & (best[..., 1:] > -torch.inf)).any(-1)
    if bool(tied.any()):
        order = values[tied].sort(dim=-1, descending=True, stable=True).indices
        where[tied] = order[:, : count + 1]
    return best[..., :count], where[..., :count]


def _best(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """As torch.topk. Of long rows it ranks the columns of a few lines first, which is faster."""
    length = values.shape[-1]
    if length < 16 * count or 64 * count <= length < LONG:
        return values.topk(count, dim=-1)
    apart = length // LINES
    highest = values[..., : LINES * apart].unflatten(-1, (LINES, apart)).amax(-2)
    columns = highest.topk(count, dim=-1, sorted=False).indices.unsqueeze(-1)
    places = (columns + torch.arange(0, LINES * apart, apart, device=values.device)).flatten(-2)
    remainder = torch.arange(LINES * apart, length, device=values.device)
    places = torch.cat([places, remainder.expand(*places.shape[:-1], -1)], -1)
    best, at = values.gather(-1, places).topk(count, dim=-1)
    return best, places.gather(-1, at)
