"""Masks that compare positions."""

from __future__ import annotations

from dataclasses import dataclass
from operator import index
from typing import Literal

import torch
from torch import Tensor

from regard.attention.masks.mask import Mask, Reach, SpanMask, overlap
from regard.attention.shapes import Frame

Align = Literal["start", "end"]
FURTHEST = 1 << 62  # no two positions are further apart


@dataclass(frozen=True)
class Band(SpanMask):
    """A query at i reads keys from i - before to i + after; None sets no bound on that side."""

    before: int | None
    after: int | None
    align: Align = "start"

    def spans(self, frame: Frame, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        positions = torch.arange(frame.queries, device=frame.device) if rows is None else rows
        if self.align == "end":
            positions = positions + (frame.keys - frame.queries)
        low, high = torch.zeros_like(positions), torch.full_like(positions, frame.keys)
        # No two positions are further apart; beyond, whole numbers of a kernel might overflow.
        furthest = frame.queries + frame.keys
        if self.before is not None:
            low = positions - max(-furthest, min(self.before, furthest))
        if self.after is not None:
            high = positions + max(-furthest, min(self.after, furthest)) + 1
        return low, high

    def reach(self, rows: range, frame: Frame) -> Reach:
        """The same as from `spans`, without tensors: this is called for every tile of a mask."""
        keys, shift = range(frame.keys), frame.keys - frame.queries if self.align == "end" else 0
        low, high = rows.start + shift, rows.stop - 1 + shift
        below = FURTHEST if self.before is None else self.before
        above = FURTHEST if self.after is None else self.after
        return Reach(
            overlap(range(low - below, high + above + 1), keys),
            overlap(range(high - below, low + above + 1), keys),
        )

    def entries(self, frame: Frame) -> list[Mask]:
        return [self]

    def tensors(self) -> list[Tensor]:
        return []

    def within(self, rows: range, columns: range, frame: Frame) -> Band:
        """The same rule for some of the queries and some of the keys, with positions counted from the first."""
        shift = frame.keys - frame.queries if self.align == "end" else 0
        moved = columns.start - rows.start - shift
        return Band(
            None if self.before is None else self.before + moved,
            None if self.after is None else self.after - moved,
        )

    def is_triangle(self, queries: int, keys: int) -> bool:
        """Whether this is the lower triangle from the top left corner, diagonal included."""
        started = self.align == "start" or queries == keys
        return started and self.before is None and self.after == 0


def causal(*, align: Align) -> Mask:
    """A query reads the keys up to its own position and none after.

    Args:
        align: where positions of unequal lengths meet. "start": query i stands at key i.
            "end": the last query stands at the last key, as for new queries on a cache of keys.

    Example:
        >>> causal(align="end").dense((), 2, 3)
        tensor([[ True,  True, False],
                [ True,  True,  True]])
    """
    return Band(None, 0, _aligned(align))


def band(before: int | None, after: int | None, *, align: Align = "start") -> Mask:
    """A query at i reads the keys from i - before to i + after, both ends in.

    Source: sliding windows, Beltagy et al. 2020, arXiv 2004.05150, section 3.1.

    Args:
        before: how many keys before its own position a query reads; None for all.
        after: how many after it; None for all.
        align: where positions of unequal lengths meet, as in `causal`.

    Example:
        >>> band(1, 0).dense((), 3, 3).int()
        tensor([[1, 0, 0],
                [1, 1, 0],
                [0, 1, 1]], dtype=torch.int32)
    """
    return Band(_count("before", before), _count("after", after), _aligned(align))


def _count(name: str, count: int | None) -> int | None:
    """A whole number, within what 64 bits hold with room to add a position to it."""
    if count is None:
        return None
    if isinstance(count, bool) or not hasattr(count, "__index__"):
        raise TypeError(f"{name} is {count!r}: pass a whole number, or None for no bound")
    return max(-FURTHEST, min(index(count), FURTHEST))


def _aligned(align: Align) -> Align:
    if align not in ("start", "end"):
        raise ValueError(f'align is {align!r}: pass "start" or "end"')
    return align
