"""Tiles of an attention of any size: 256 x 256 numbers at a level of a pyramid, computed when they are asked for.

At level k a number stands for 2^k x 2^k cells. A tile of level 4 or below is computed from the look. The levels above
are pooled from level 5, which takes one pass over all weights (`strips`, `add`); until that is done their tiles are
drawn from one row of each bin and say so.
"""

from dataclasses import dataclass
from math import ceil
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention.looks import Look

SIZE = 256  # rows and columns of a tile
BASE = 5  # the lowest level that needs a pass over all weights
WIDEST = 1 << 15  # pixels of a level whose rows of tiles are computed whole
KEPT = 8  # rows of tiles that are kept, of at most 32 MB
STRIP = 64  # rows of level 5 computed at a time, so that tiles can be computed in between

Reduce = Literal["max", "mean"]


class Level(NamedTuple):
    """The size of a level in pixels, and the cells of a pixel down and across."""

    rows: int
    columns: int
    down: float
    across: float


@dataclass(frozen=True, eq=False)
class Tile:
    """Numbers of a tile, NaN where no key may be read; smaller than 256 x 256 at the right and lower edges.

    They are not `exact` if they come from one row of each bin.
    """

    numbers: Float[Tensor, "rows columns"]
    exact: bool


class Tiles:
    """The pyramid of one head, a look of shape (queries, keys)."""

    def __init__(self, look: Look) -> None:
        self.look = look
        queries, keys = look.shape
        self.levels = [_level(queries, keys, 0)]
        while max(self.levels[-1][:2]) > SIZE:
            self.levels.append(_level(queries, keys, len(self.levels)))
        self._base: dict[Reduce, Tensor] = {}
        self._kept: dict[tuple[int, int, Reduce], Tensor] = {}
        self._done: dict[Reduce, set[int]] = {"max": set(), "mean": set()}

    def is_exact(self, level: int, reduce: Reduce) -> bool:
        """Whether the tiles of a level come from all cells."""
        return level < BASE or len(self._done[reduce]) == len(self.strips)

    @torch.no_grad()
    def tile(self, level: int, row: int, column: int, reduce: Reduce) -> Tile:
        """The tile whose first pixel is (256 row, 256 column) of its level.

        Raises:
            IndexError: there is no such tile.
        """
        size = self.levels[level]
        rows = range(row * SIZE, min((row + 1) * SIZE, size.rows))
        columns = range(column * SIZE, min((column + 1) * SIZE, size.columns))
        if not rows or not columns:
            raise IndexError(f"level {level} has no tile ({row}, {column})")
        if exact := self.is_exact(level, reduce) and level >= BASE:
            numbers = self._pooled(level, rows, columns, reduce)
        elif size.columns <= WIDEST:
            numbers = self._strip(level, row, reduce)[:, columns.start : columns.stop]
        else:
            numbers = self._computed(level, rows, columns, reduce)
        bins = bounds(rows, size.down), bounds(columns, size.across)
        return Tile(masked(self.look, numbers, *bins), exact or level < BASE)

    def _strip(self, level: int, row: int, reduce: Reduce) -> Tensor:
        """All tiles of one row of tiles: a row is normalised over every key, whichever of them are shown."""
        at = (level, row, reduce)
        if at not in self._kept:
            size = self.levels[level]
            rows = range(row * SIZE, min((row + 1) * SIZE, size.rows))
            self._kept[at] = self._computed(level, rows, range(size.columns), reduce)
            while len(self._kept) > KEPT:
                del self._kept[next(iter(self._kept))]
        return self._kept[at]

    def _computed(self, level: int, rows: range, columns: range, reduce: Reduce) -> Tensor:
        """Pixels from the look: of all their cells below the base, else of one row of each bin."""
        size = self.levels[level]
        cells = range(int(columns.start * size.across), self._end(columns.stop, size.across, 1))
        if level >= BASE:
            starts = torch.tensor(rows) * size.down
            ends = (starts + size.down).clamp(max=self.look.shape[0])  # the last bin may be cut off
            middles = ((starts + ends) / 2).long()
            return self._map(len(rows), len(columns), middles, cells, reduce)
        down = range(int(rows.start * size.down), self._end(rows.stop, size.down, 0))
        strips = [
            torch.cat(
                [
                    self._map(high, wide, part, across, reduce)
                    for wide, across in _bins(cells, level)
                ],
                1,
            )
            for high, part in _bins(down, level)
        ]
        return torch.cat(strips)

    @property
    def strips(self) -> range:
        """The parts of the pass over all weights; none if no level needs it."""
        return range(ceil(self.levels[BASE].rows / STRIP) if len(self.levels) > BASE else 0)

    @torch.no_grad()
    def add(self, strip: int, reduce: Reduce) -> None:
        """Compute one part of level 5."""
        if strip in self._done[reduce]:
            return
        size = self.levels[BASE]
        base = self._base.setdefault(reduce, torch.zeros(size.rows, size.columns, dtype=torch.half))
        rows = range(strip * STRIP, min((strip + 1) * STRIP, size.rows))
        cells = range(int(rows.start * size.down), self._end(rows.stop, size.down, 0))
        base[rows.start : rows.stop] = self.look.map(len(rows), size.columns, cells, reduce=reduce)
        self._done[reduce].add(strip)

    def _map(
        self, height: int, width: int, rows: range | Tensor, columns: range, reduce: Reduce
    ) -> Tensor:
        return self.look.map(height, width, rows, columns, reduce).float().cpu()

    def _pooled(self, level: int, rows: range, columns: range, reduce: Reduce) -> Tensor:
        """Pixels of a level above 5, from those of level 5; at the edges from those that there are."""
        wide = 1 << (level - BASE)
        base = self._base[reduce][
            rows.start * wide : rows.stop * wide, columns.start * wide : columns.stop * wide
        ].float()
        missing = (len(columns) * wide - base.shape[1], len(rows) * wide - base.shape[0])
        padded = torch.nn.functional.pad(base, (0, missing[0], 0, missing[1]), value=torch.nan)
        bins = padded.reshape(len(rows), wide, len(columns), wide).transpose(1, 2).flatten(2)
        if reduce == "mean":
            return bins.nanmean(-1)
        return bins.nan_to_num(-torch.inf).amax(-1)

    def _end(self, pixel: int, cells: float, axis: int) -> int:
        return min(ceil(pixel * cells), self.look.shape[axis])


def bounds(pixels: range, cells: float) -> Int[Tensor, "2 pixels"]:
    """The first and the last cell of each pixel, of so many cells each."""
    places = torch.arange(pixels.start, pixels.stop + 1, dtype=torch.float64)
    edges = (places * cells + 1e-6).long()  # an edge that is a whole number may be a little less
    return torch.stack([edges[:-1], edges[1:] - 1])


def masked(
    look: Look,
    numbers: Float[Tensor, "*heads rows columns"],
    rows: Int[Tensor, "2 rows"],
    columns: Int[Tensor, "2 columns"],
) -> Float[Tensor, "*heads rows columns"]:
    """The pixels of a map, NaN where no key may be read: a pixel that is 0 and whose corner cells are masked."""
    queries, keys = look.shape[-2:]
    corners = look.readable(
        rows=rows.clamp(max=queries - 1).flatten(), columns=columns.clamp(max=keys - 1).flatten()
    )
    if corners is None:
        return numbers
    open_ = corners.unflatten(-1, (2, -1)).any(-2).unflatten(-2, (2, -1)).any(-3)
    return numbers.masked_fill(~open_.to(numbers.device) & (numbers == 0), torch.nan)


def _level(queries: int, keys: int, level: int) -> Level:
    """Bins of 2^level cells; above the base, of as many bins of the base, which divide the cells evenly."""
    if level < BASE:
        cells = float(1 << level)
        return Level(ceil(queries / cells), ceil(keys / cells), cells, cells)
    base, wide = 1 << BASE, 1 << (level - BASE)
    rows, columns = ceil(queries / base), ceil(keys / base)
    return Level(
        ceil(rows / wide), ceil(columns / wide), queries / rows * wide, keys / columns * wide
    )


def _bins(cells: range, level: int) -> list[tuple[int, range]]:
    """The full bins of 2^level cells, and the shorter one at the edge: their number and their cells."""
    full = len(cells) >> level
    edge = cells.start + (full << level)
    bins = [(full, range(cells.start, edge)), (1, range(edge, cells.stop))]
    return [(count, part) for count, part in bins if part]
