"""A learned bias for each distance between query and key, near ones one by one, far ones together."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.positions.offsets import offsets

__all__ = ["RelativeBias", "relative_buckets"]


def relative_buckets(
    offset: Int[Tensor, "..."],
    *,
    buckets: int = 32,
    furthest: int = 128,
    bidirectional: bool = True,
) -> Int[Tensor, "..."]:
    """The bucket of each distance: its own for near ones, those further away in steps that grow.

    With n buckets for distances d = |offset|: ``d`` if d < n / 2, and else
    ``min(n - 1, n/2 + floor(log(d / (n/2)) / log(furthest / (n/2)) n/2))``.

    T5 (Raffel et al. 2020, arXiv 1910.10683, section 2.1). Where keys may come after the query, half of the
    buckets are for those; where they may not (``bidirectional=False``), they share the bucket of distance 0.

    Args:
        offset: The key's place less the query's.
        buckets: How many there are in all.
        furthest: From this distance on all share the last bucket.
        bidirectional: Whether keys after the query have buckets of their own.

    Returns:
        Numbers from 0 to ``buckets - 1``.

    Raises:
        ValueError: If there are too few buckets, or ``furthest`` lies among the near ones.

    Example:
        >>> relative_buckets(torch.tensor([-200, -20, -2, 0, 2, 20, 200]))
        tensor([15, 10,  2,  0, 18, 26, 31])
    """
    near = _near(buckets, furthest, bidirectional)
    distance = offset.abs() if bidirectional else (-offset).clamp(min=0)
    # In float32, as the models that have such buckets were trained.
    share = torch.log(distance.clamp(min=1).float() / near) / math.log(furthest / near)
    far = (near + (share * near).long()).clamp(max=2 * near - 1)
    bucket = torch.where(distance < near, distance, far)
    return bucket + (offset > 0) * 2 * near if bidirectional else bucket


def _near(buckets: int, furthest: int, bidirectional: bool) -> int:
    """How many distances, 0 included, have a bucket of their own: half of the buckets of a side."""
    sides = 2 if bidirectional else 1
    near = buckets // sides // 2
    if near < 1 or buckets % (2 * sides):
        raise ValueError(f"buckets is {buckets}: pass a multiple of {2 * sides}")
    if furthest <= near:
        raise ValueError(f"furthest is {furthest}: pass more than the {near} near distances")
    return near


class RelativeBias(nn.Module):
    """A learned number for each head and bucket, added to the scores.

    ``bias[h, i, j] = weight[bucket(j - i), h]``, with `relative_buckets`.

    T5 (Raffel et al. 2020, arXiv 1910.10683, section 2.1), where all layers of a stack share one.

    Args:
        heads: Number of heads.
        buckets, furthest, bidirectional: Those of `relative_buckets`.

    Raises:
        ValueError: If there are no heads, or see `relative_buckets`.

    Example:
        >>> RelativeBias(heads=2)(3, 5).shape
        torch.Size([2, 3, 5])
    """

    def __init__(
        self, heads: int, *, buckets: int = 32, furthest: int = 128, bidirectional: bool = True
    ) -> None:
        super().__init__()
        if heads < 1:
            raise ValueError(f"heads is {heads}: pass at least 1")
        _near(buckets, furthest, bidirectional)
        self.furthest, self.bidirectional = furthest, bidirectional
        self.weight = nn.Parameter(torch.empty(buckets, heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the biases anew, small beside scores."""
        nn.init.normal_(self.weight, std=0.05)

    def forward(
        self, queries: int, keys: int, start: int = 0
    ) -> Float[Tensor, "heads queries keys"]:
        """The bias of scores, for ``bias=`` of `regard.attend` over ``(*batch, heads, queries, keys)``.

        Args:
            queries: Number of queries.
            keys: Number of keys, from place 0 on.
            start: The place of the first query among the keys.
        """
        bucket = relative_buckets(
            offsets(queries, keys, start, self.weight.device),
            buckets=len(self.weight),
            furthest=self.furthest,
            bidirectional=self.bidirectional,
        )
        return self.weight[bucket].permute(2, 0, 1)

    def extra_repr(self) -> str:
        buckets, heads = self.weight.shape
        return f"heads={heads}, buckets={buckets}, furthest={self.furthest}, bidirectional={self.bidirectional}"
