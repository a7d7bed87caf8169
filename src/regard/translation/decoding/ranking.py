"""The best few of many, equals in the order in which they stand."""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor


def top(
    values: Float[Tensor, "rows many"], count: int
) -> tuple[Float[Tensor, "rows few"], Int[Tensor, "rows few"]]:
    """The `count` greatest of each row and where they stand; of equals the first first.

    torch.topk leaves open which of several equals it returns; in bfloat16 equals are common.
    Places with -inf may come in any order.
    """
    many = values.shape[-1]
    if count >= many:
        return values.sort(dim=-1, descending=True, stable=True)
    best, where = values.topk(count + 1, dim=-1)
    tied = ((best[:, 1:] == best[:, :-1]) & best[:, 1:].isfinite()).any(-1)
    best, where = best[:, :count], where[:, :count]
    if bool(tied.any()):
        rows = tied.nonzero().flatten()
        where = where.clone()
        where[rows] = _first_of_equals(values[rows], best[rows, -1:], count)
        best = values.gather(-1, where)
    return best, where


def _first_of_equals(
    values: Float[Tensor, "rows many"], least: Float[Tensor, "rows 1"], count: int
) -> Int[Tensor, "rows few"]:
    """Where the values above `least` stand, and the first of those equal to it, in order."""
    above, equal = values > least, values == least
    places = count - above.sum(-1, keepdim=True)
    chosen = above | (equal & (equal.cumsum(-1) <= places))
    where = chosen.nonzero()[:, 1].view(len(values), count)
    order = values.gather(-1, where).sort(dim=-1, descending=True, stable=True).indices
    return where.gather(-1, order)
