"""The mask of sentences of unequal lengths, side by side on one axis instead of padded."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from regard.attention.masks.mask import Mask, Reach
from regard.attention.shapes import Frame, ShapeError


class SentenceSpan(NamedTuple):
    """A sentence's queries, and the keys they read."""

    rows: range
    columns: range


@dataclass(frozen=True)
class Packed(Mask):
    """A query reads the keys of its own sentence; lengths are those of sentences in their order."""

    lengths: tuple[int, ...]
    key_lengths: tuple[int, ...]

    def window(self, rows: Tensor, columns: Tensor, frame: Frame) -> Tensor:
        low, high = (side[rows].unsqueeze(-1) for side in self.spans(frame))
        return (columns >= low) & (columns < high)

    def spans(self, frame: Frame) -> tuple[Tensor, Tensor]:
        """The first key of each query's sentence, and the one after its last."""
        self._check(frame)
        counts = torch.tensor(self.lengths, dtype=torch.int64)
        ends = torch.tensor(self.key_lengths, dtype=torch.int64).cumsum(0)
        starts = ends - torch.tensor(self.key_lengths, dtype=torch.int64)
        low, high = (side.repeat_interleave(counts).to(frame.device) for side in (starts, ends))
        return low, high

    def reach(self, rows: range, frame: Frame) -> Reach:
        self._check(frame)
        if not rows:
            return Reach(range(0), range(0))
        until, ends = list(accumulate(self.lengths)), [0, *accumulate(self.key_lengths)]
        first, last = bisect_right(until, rows.start), bisect_right(until, rows.stop - 1)
        some = range(ends[first], ends[last + 1])
        return Reach(some, some if first == last else range(0))

    def sections(self) -> list[SentenceSpan]:
        """The sentences: blocks on the diagonal, outside of which nothing may be read."""
        until, ends = [0, *accumulate(self.lengths)], [0, *accumulate(self.key_lengths)]
        rows = [range(*pair) for pair in pairwise(until)]
        columns = [range(*pair) for pair in pairwise(ends)]
        return [SentenceSpan(*pair) for pair in zip(rows, columns, strict=True)]

    def _check(self, frame: Frame) -> None:
        for name, lengths, there in (
            ("lengths", self.lengths, frame.queries),
            ("key_lengths", self.key_lengths, frame.keys),
        ):
            if sum(lengths) != there:
                kind = "queries" if name == "lengths" else "keys"
                raise ShapeError(
                    f"{name} add up to {sum(lengths)}, there are {there} {kind}:"
                    " pass the length of every sentence on the axis"
                )


def packed(
    lengths: Int[Tensor, " sentences"] | Sequence[int],
    key_lengths: Int[Tensor, " sentences"] | Sequence[int] | None = None,
) -> Mask:
    """Sentences packed into one row without padding; a query reads the keys of its own sentence.

    The same mask as `documents`, from lengths: the kernels compute only the blocks on the diagonal.
    From cumulative lengths: `packed(offsets.diff())`. Joined by `&` with `causal(align="start")`,
    each sentence is causal in itself where it has as many keys as queries.

    Args:
        lengths: queries of each sentence, in their order; they add up to all queries.
        key_lengths: keys of each sentence; as many as its queries by default.

    Raises:
        ValueError: a length is negative, or there are more sentences of queries than of keys, or fewer.

    Example:
        >>> packed([1, 2]).dense((), 3, 3).int()
        tensor([[1, 0, 0],
                [0, 1, 1],
                [0, 1, 1]], dtype=torch.int32)
    """
    counts = _whole(lengths)
    return Packed(counts, counts if key_lengths is None else _matched(counts, _whole(key_lengths)))


def _whole(lengths: Tensor | Sequence[int]) -> tuple[int, ...]:
    tensor = torch.as_tensor(lengths)
    if tensor.ndim != 1 or (tensor.numel() and tensor.dtype.is_floating_point):
        raise ValueError(
            f"lengths have shape {list(tensor.shape)} and hold {tensor.dtype}:"
            " pass one whole number for each sentence"
        )
    if bool((tensor < 0).any()):
        raise ValueError("a length is negative: for cumulative lengths pass their differences")
    return tuple(int(length) for length in tensor.tolist())


def _matched(lengths: tuple[int, ...], others: tuple[int, ...]) -> tuple[int, ...]:
    if len(lengths) != len(others):
        raise ValueError(
            f"there are {len(lengths)} lengths and {len(others)} key_lengths:"
            " pass one of each for every sentence"
        )
    return others
