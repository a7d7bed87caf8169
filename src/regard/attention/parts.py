"""A reading over some of the keys, which adds up with those over the others to the reading over all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.shapes import Shape

LOWEST = torch.finfo(torch.float64).min
HELD = 32  # parts that a sum holds: fewer take more calls, more take more memory


@dataclass(frozen=True)
class Part:
    """The share of one part of the keys in a softmax reading of all of them.

        m = max_j s_j    z = sum_j e^(s_j - m)    u = sum_j e^(s_j - m) v_j

    The sum of parts is associative, so blocks of a file, tiles or processes may come in any order.
    reading = u / z; log-normaliser = m + ln z. Source: Milakov and Gimelshein 2018, arXiv 1805.02867,
    equation 4. Sums are kept in float64, so that many parts lose little.

    Args:
        maximum: m, -inf where nothing may be read.
        total: z.
        blend: u.
    """

    maximum: Float[Tensor, "*batch queries"]
    total: Float[Tensor, "*batch queries"]
    blend: Float[Tensor, "*batch queries d_value"]

    @classmethod
    def of(
        cls,
        scores: Float[Tensor, "*batch queries keys"],
        value: Float[Tensor, "*batch keys d_value"],
    ) -> Part:
        """The part of these keys; a score of -inf excludes its key."""
        maximum = (
            scores.amax(-1) if scores.shape[-1] else scores.new_full(scores.shape[:-1], -torch.inf)
        )
        exponentials = (scores - _finite(maximum).unsqueeze(-1)).exp()
        return cls(maximum, exponentials.sum(-1).double(), (exponentials @ value).double())

    @classmethod
    def none(cls, rows: Shape, width: int) -> Part:
        """The part of no keys, for queries of this shape and values of this width."""
        return cls.of(torch.zeros(*rows, 0), torch.zeros(0, width))

    def __add__(self, addend: Part) -> Part:
        return Part.joined([self, addend])

    @classmethod
    def joined(cls, shares: Sequence[Part]) -> Part:
        """The sum of parts."""
        return cls.stacked(
            *(
                torch.stack([getattr(share, name) for share in shares])
                for name in ("maximum", "total", "blend")
            )
        )

    @classmethod
    def stacked(cls, maxima: Tensor, totals: Tensor, blends: Tensor) -> Part:
        """The sum of parts that lie along a first axis."""
        return cls(*added(torch, maxima.double(), totals, blends))

    @classmethod
    def sum(cls, shares: Iterable[Part]) -> Part:
        """The sum of one or more parts, of which few are held at a time."""
        sums: list[Part] = []
        for share in shares:
            sums.append(share)
            if len(sums) == HELD:
                sums = [cls.joined(sums)]
        return cls.joined(sums)

    def reading(self) -> Float[Tensor, "*batch queries d_value"]:
        """The blended values in float64; zeros for a query with nothing to read."""
        reading: Tensor = quotient(self.total, self.blend)
        return reading

    def log_normaliser(self) -> Float[Tensor, "*batch queries"]:
        """ln sum_j e^(s_j) in float64; -inf for a query with nothing to read."""
        return self.maximum.double() + self.total.log()


def added(space: Any, maxima: Any, totals: Any, blends: Any) -> tuple[Any, Any, Any]:
    """m, z and u of all keys, from those of parts along a first axis, in float64.

    Of tensors with torch, or of arrays with numpy, which takes half the time for few numbers.
    """
    maximum = space.amax(maxima, 0)
    factors = space.exp(maxima - space.clip(maximum, LOWEST, None))
    return maximum, (totals * factors).sum(0), (blends * factors[..., None]).sum(0)


def quotient(total: Any, blend: Any) -> Any:
    """u / z, of tensors or arrays: z is 1 at least, and where there is nothing to read both are 0."""
    return blend / total.clip(0.5)[..., None]


def _finite(maximum: Tensor) -> Tensor:
    return maximum.clamp(min=torch.finfo(maximum.dtype).min)
