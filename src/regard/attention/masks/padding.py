"""The mask of batches of unequal lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from regard.attention.masks.mask import Mask, Reach, check_whole, lead
from regard.attention.shapes import Frame


@dataclass(frozen=True, eq=False)
class Padding(Mask):
    """The first `lengths` keys of each batch entry may be read."""

    lengths: Tensor

    def window(self, rows: Tensor, columns: Tensor, frame: Frame) -> Tensor:
        lengths = lead(self.lengths.to(columns.device), 0, frame, "lengths")
        return columns < lengths[..., None, None]

    def reach(self, rows: range, frame: Frame) -> Reach:
        if not self.lengths.numel():
            return super().reach(rows, frame)
        longest, shortest = int(self.lengths.max()), int(self.lengths.min())
        return Reach(range(_within(longest, frame.keys)), range(_within(shortest, frame.keys)))

    def spans(self, frame: Frame) -> tuple[Tensor, Tensor]:
        lengths = self.lengths.to(frame.device, torch.int64)
        lengths = lead(lengths, 0, frame, "lengths")[..., None]
        return torch.zeros_like(lengths), lengths


def _within(length: int, keys: int) -> int:
    return min(max(length, 0), keys)


def padding(lengths: Int[Tensor, "*batch"] | Sequence[Any] | int) -> Mask:
    """The first `lengths` keys of each batch entry may be read; the padding after them may not.

    Args:
        lengths: number of keys of each entry, over the leading batch axes: lengths of shape
            (batch) serve scores of shape (batch, heads, queries, keys).

    Raises:
        TypeError: lengths that are not whole numbers.

    Example:
        >>> padding([1, 3]).dense((2,), 1, 3)
        tensor([[[ True, False, False]],
        <BLANKLINE>
                [[ True,  True,  True]]])
    """
    lengths = torch.as_tensor(lengths)
    check_whole("lengths", lengths)
    return Padding(lengths)
