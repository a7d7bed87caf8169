"""Which rows of a packed batch each step of a recurrence computes, in the order of the steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from torch import Tensor

__all__ = ["Steps"]


@dataclass(frozen=True)
class Steps:
    """Step k computes `sizes[k]` rows from `starts[k]` on.

    Row i of a step goes on from row i of the step before, where there was one, and begins
    otherwise; rows that a step no longer has have ended.

    Example:
        >>> Steps.backwards([3, 2, 2])
        Steps(starts=(5, 3, 0), sizes=(2, 2, 3))
        >>> Steps.backwards([3, 2, 2]).carried
        (0, 2, 2)
    """

    starts: tuple[int, ...]
    sizes: tuple[int, ...]

    @classmethod
    def forwards(cls, sizes: Sequence[int]) -> Steps:
        """In the order in which the rows lie."""
        return cls((0, *accumulate(sizes))[:-1], tuple(sizes))

    @classmethod
    def backwards(cls, sizes: Sequence[int]) -> Steps:
        """The last rows first."""
        onwards = cls.forwards(sizes)
        return cls(onwards.starts[::-1], onwards.sizes[::-1])

    def __len__(self) -> int:
        return len(self.sizes)

    @cached_property
    def carried(self) -> tuple[int, ...]:
        """How many rows of each step go on from the one before; of the first step, none."""
        return tuple(map(min, self.sizes, (0, *self.sizes)))

    def split(self, rows: Tensor) -> list[Tensor]:
        """The rows of each step."""
        return [rows.narrow(0, *place) for place in zip(self.starts, self.sizes, strict=True)]
