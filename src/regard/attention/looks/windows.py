"""Windows of the weights, and maps of them at any resolution.

Bin i of h over n rows covers rows floor(i n / h) to floor((i + 1) n / h), the last one out; where
that is none, as in a map finer than its window, it shows the row that it begins at.
"""

from collections.abc import Iterable
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.looks.blocks import Block
from regard.attention.masks.mask import check_whole

Reduce = Literal["mean", "max"]
Window = range | slice | Tensor | Iterable[int] | None


def positions(window: Window, length: int, device: torch.device) -> Tensor:
    """The positions that a range, slice, tensor or sequence names; negative ones from the end."""
    if window is None:
        return torch.arange(length, device=device)
    if isinstance(window, slice):
        window = range(*window.indices(length))
    if not isinstance(window, Tensor):
        if isinstance(window, str) or not isinstance(window, Iterable):
            raise TypeError(
                f"positions are {window!r:.60}: pass several of them, such as [3], range(3, 5) or slice(3)"
            )
        window = torch.as_tensor(list(window), device=device)
    check_whole("positions", window)
    index = window.to(device, torch.long)
    if index.ndim != 1:
        raise IndexError(f"positions have {index.ndim} axes: pass one axis of them")
    if index.numel() and not (-length <= int(index.min()) and int(index.max()) < length):
        raise IndexError(
            f"positions run from {int(index.min())} to {int(index.max())}, of {length}:"
            f" pass some from {-length} to {length - 1}"
        )
    return torch.where(index < 0, index + length, index)


class Bins:
    """`count` bins over `length` positions."""

    def __init__(self, count: int, length: int, device: torch.device) -> None:
        edges = torch.arange(count + 1, device=device) * length // count
        self.count, self.length = count, length
        self.starts = edges[:-1].clamp(max=max(0, length - 1))
        self.sizes = (edges[1:] - edges[:-1]).clamp(min=1)
        self._span = int(self.sizes.max()) if length else 0

    def within(self, start: int, stop: int) -> tuple[int, int]:
        """The first bin, and the one after the last, that hold any position of this stretch."""
        ends = self.starts + self.sizes
        return int((ends <= start).sum()), int((self.starts < stop).sum())

    def pool(self, numbers: Tensor, reduce: Reduce) -> Tensor:
        """Sums or maxima along the last axis, (..., length) -> (..., bins)."""
        fill = 0.0 if reduce == "mean" else -torch.inf
        offsets = torch.arange(self._span, device=numbers.device)
        inside = offsets < self.sizes[:, None]
        index = torch.where(inside, self.starts[:, None] + offsets, self.length)
        padded = F.pad(numbers, (0, 1), value=fill).flatten(0, -2)  # two axes pick quickest
        cells = padded.index_select(-1, index.flatten())
        cells = cells.view(*numbers.shape[:-1], self.count, self._span)
        pooled: Tensor = cells.sum(-1) if reduce == "mean" else cells.amax(-1)
        return pooled


class Map:
    """A map that is filled in a block at a time.

    Rows are pooled first, so that columns are pooled once a bin and not once a row.
    """

    def __init__(
        self, bins: tuple[Bins, Bins], columns: Tensor | None, reduce: Reduce, cells: Tensor
    ) -> None:
        self._down, self._across = bins
        self._columns, self._reduce = columns, reduce
        self.cells = cells.fill_(0.0 if reduce == "mean" else -torch.inf)

    def add(self, block: Block, keys: int) -> None:
        """Pool a block in."""
        region = block.region
        low, high = self._down.within(region.at.start, region.at.stop)
        rows = torch.arange(region.at.start, region.at.stop, device=region.rows.device)
        starts, sizes = self._down.starts[low:high, None], self._down.sizes[low:high, None]
        inside = (rows >= starts) & (rows < starts + sizes)
        rows_pooled = self._pool_rows(block, inside)
        padded = region.spread(rows_pooled, keys)
        if self._columns is not None:
            padded = padded.index_select(-1, self._columns)
        into = self.cells[(*region.entries, slice(low, high))]
        cells = self._across.pool(padded, self._reduce)
        if self._reduce == "mean":
            into += cells
        else:
            into.copy_(torch.maximum(into, cells))

    def _pool_rows(self, block: Block, inside: Tensor) -> Tensor:
        """The block's rows pooled into their bins, (*entries, bins, columns)."""
        if self._reduce == "mean":
            numerators, factors = block.shares()
            return (inside.to(factors.dtype) * factors.unsqueeze(-2)) @ numerators
        weights = block.weights()
        return torch.stack([weights[..., run, :].amax(-2) for run in _runs(inside)], -2)

    def pooled(self) -> Tensor:
        """The map, (*batch, height, width)."""
        if self._reduce == "mean":
            area = self._down.sizes[:, None] * self._across.sizes
            return self.cells / area
        return torch.where(self.cells == -torch.inf, 0.0, self.cells)


def _runs(inside: Tensor) -> list[slice]:
    starts = inside.int().argmax(-1).tolist()
    return [slice(i, i + n) for i, n in zip(starts, inside.sum(-1).tolist(), strict=True)]
