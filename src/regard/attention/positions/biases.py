"""Biases of scores by distance: at a slope of each head's own, or learned for each range of distances."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.constants import flag, whole
from regard.attention.shapes import ShapeError

BiasFunction: TypeAlias = Callable[[Tensor, Tensor], Tensor]  # of positions, as in `Alibi.between`


@runtime_checkable
class PositionBias(Protocol):
    """A bias that is a function of positions, such as `Alibi` and `RelativeBias`."""

    def between(self, rows: Tensor, columns: Tensor, /) -> Tensor:
        """The bias of queries at `rows`, (rows, 1), and keys at `columns`."""


def _positions(
    queries: int, keys: int, start: int, device: torch.device | str | None
) -> tuple[Tensor, Tensor]:
    """The positions of queries, (queries, 1), and of keys, (1, keys)."""
    if min(queries, keys, start) < 0:
        raise ShapeError(
            f"got {queries} queries from place {start} on and {keys} keys: pass none below 0"
        )
    query = torch.arange(start, start + queries, device=device)
    return query[:, None], torch.arange(keys, device=device)[None]


def function_of(bias: Any) -> BiasFunction | None:
    """The function of positions that a bias is, or that it has as `between`; None for a tensor."""
    if isinstance(bias, Tensor):
        return None
    between: BiasFunction | None = getattr(bias, "between", bias if callable(bias) else None)
    return between


def is_relative(bias: BiasFunction) -> bool:
    """Whether a bias is known to depend only on the distance between query and key."""
    return type(getattr(bias, "__self__", None)) in (Alibi, RelativeBias)


def alibi_slopes(heads: int, device: torch.device | str | None = None) -> Float[Tensor, " heads"]:
    """The slopes of heads: a geometric sequence that begins at its own ratio, 2^(-8 / heads).

    ``m_h = 2^(-8h / heads),  h = 1 ... heads``

    Train Short, Test Long (Press et al. 2021, arXiv 2108.12409, section 3). A number of heads that
    is no power of two gets the slopes of the power below, then every other slope of the power above, as in
    the authors' code.

    Args:
        heads: How many there are.
        device: Where the slopes are made.

    Raises:
        ValueError: If there are no heads.

    Example:
        >>> alibi_slopes(8)[:3], alibi_slopes(3)
        (tensor([0.5000, 0.2500, 0.1250]), tensor([0.0625, 0.0039, 0.2500]))
    """
    if heads < 1:
        raise ValueError(f"heads is {heads}: pass at least 1")
    power = 1 << (heads.bit_length() - 1)
    slopes = [*_geometric(power), *_geometric(2 * power)[::2]]
    return torch.tensor(slopes[:heads], device=device)


def _geometric(heads: int) -> list[float]:
    return [float(2 ** (-8 * h / heads)) for h in range(1, heads + 1)]


@dataclass(frozen=True)
class Alibi:
    """Attention with linear biases: distant keys score less. Nothing is learned.

    ``bias[h, i, j] = -m_h |i - j|``

    Train Short, Test Long (Press et al. 2021, arXiv 2108.12409, section 3), with `alibi_slopes`. There keys never come
    after the query. Here those that do fall off likewise, so that an encoder may have it; a decoder's mask hides them.

    Args:
        heads: Number of heads.

    Example:
        >>> Alibi(heads=8)(3, 3)[0]
        tensor([[-0.0000, -0.5000, -1.0000],
                [-0.5000, -0.0000, -0.5000],
                [-1.0000, -0.5000, -0.0000]])
    """

    heads: int

    def __post_init__(self) -> None:
        whole("heads", self.heads)

    def __call__(
        self, queries: int, keys: int, start: int = 0, *, device: torch.device | str | None = None
    ) -> Float[Tensor, "heads queries keys"]:
        """The bias of scores, for ``bias=`` of `regard.attend` over ``(*batch, heads, queries, keys)``.

        Args:
            queries: Number of queries.
            keys: Number of keys, from place 0 on.
            start: The place of the first query among the keys.
            device: Where it is put.
        """
        return self.between(*_positions(queries, keys, start, device))

    def between(
        self, query: Int[Tensor, "queries 1"], key: Int[Tensor, "1 keys"]
    ) -> Float[Tensor, "heads queries keys"]:
        """The bias between queries and keys at these positions; as `regard.attend` calls it."""
        return -alibi_slopes(self.heads, query.device)[:, None, None] * (key - query).abs()


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
        heads, buckets = whole("heads", heads), whole("buckets", buckets, 0)
        furthest = whole("furthest", furthest, 0)
        bidirectional = flag("bidirectional", bidirectional)
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
        return self.between(*_positions(queries, keys, start, self.weight.device))

    def between(
        self, query: Int[Tensor, "queries 1"], key: Int[Tensor, "1 keys"]
    ) -> Float[Tensor, "heads queries keys"]:
        """The bias between queries and keys at these positions; as `regard.attend` calls it."""
        bucket = relative_buckets(
            key - query,
            buckets=len(self.weight),
            furthest=self.furthest,
            bidirectional=self.bidirectional,
        )
        return self.weight[bucket].permute(2, 0, 1)

    def extra_repr(self) -> str:
        buckets, heads = self.weight.shape
        return f"heads={heads}, buckets={buckets}, furthest={self.furthest}, bidirectional={self.bidirectional}"


BiasLike: TypeAlias = Tensor | BiasFunction | PositionBias
