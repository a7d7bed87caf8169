"""A mask as tiles: rectangles of queries and keys outside of which nothing may be read."""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from torch import Tensor

from regard.attention.masks.layout import positions_of, reads_of
from regard.attention.masks.mask import Mask, Place, covers
from regard.attention.masks.positions import Band
from regard.attention.shapes import Frame

STRIP = 128  # queries that are divided only to save memory
PAIRS = 2**20  # of a strip whose mask is written out
FEW = 16  # queries of a section, on average, that is worth a tile of its own


class Tile(NamedTuple):
    """Some queries and some keys. No query reads a key in two tiles.

    Attributes:
        rows, columns: the positions of the queries and of the keys.
        triangle: whether query i of the tile reads its keys up to i, and not all of them.
        rule: which keys may be read; None where the other three say it all.
        joins: whether the tile before has the same queries.
        runs: the keys, where they are only some of `columns`.
    """

    rows: range
    columns: range
    triangle: bool = False
    rule: Mask | None = None
    joins: bool = False
    runs: tuple[range, ...] = ()

    @property
    def keys(self) -> int:
        """How many keys there are."""
        return sum(map(len, self.runs)) or len(self.columns)

    def positions(self, frame: Frame) -> tuple[Tensor, Tensor]:
        """The positions of the queries and of the keys, as tensors."""
        sides = [self.rows], self.runs or [self.columns]
        at, keys = (positions_of(runs, frame.device) for runs in sides)
        return at, keys

    def window(self, frame: Frame) -> Tensor | None:
        """Which keys may be read by the rule, (*axes of the mask, rows, columns)."""
        if self.rule is None:
            return None
        if isinstance(self.rule, Band):
            band = self.rule.within(self.rows, self.columns, frame)
            return band.dense((), len(self.rows), len(self.columns))
        window = self.rule.window(*self.positions(frame), frame)
        return window.expand(*window.shape[:-2], len(self.rows), self.keys)


def tiles(mask: Mask, frame: Frame, room: int | None = None) -> list[Tile]:
    """The tiles of a mask, for all batch entries at once.

    Args:
        mask: the mask.
        frame: what it is laid over.
        room: pairs of a tile, for a kernel that writes them out; such a kernel gets no triangles.
    """
    breaks = mask.breaks(frame)
    if len(breaks) * FEW > frame.queries:
        breaks = []
    strips = pairwise([0, *breaks, frame.queries])
    return [tile for strip in strips for tile in _divided(mask, range(*strip), frame, room)]


def independent_tiles(mask: Mask, frame: Frame) -> list[Tile] | None:
    """The tiles of a mask, where they are independent and the same for all batch entries; else None."""
    entries = mask.entries(frame)
    if entries is None or len(entries) > 1:
        return None
    division = tiles(entries[0], frame)
    return division if are_independent(division, frame) else None


def are_independent(tiles: list[Tile], frame: Frame) -> bool:
    """Whether each tile needs no table, and their readings follow one another."""
    is_plain = not any(tile.rule or tile.joins for tile in tiles)
    return is_plain and sum(len(tile.rows) for tile in tiles) == frame.queries


def _divided(mask: Mask, rows: range, frame: Frame, room: int | None) -> Iterator[Tile]:
    runs, common = reads_of(mask, rows, frame) if rows else ([], range(0))
    if not runs:
        return
    readable, keys = range(runs[0].start, runs[-1].stop), sum(map(len, runs))
    rules = [] if covers(common, readable) else mask.rules(Place(rows, readable, frame))
    rule = rules[0] if len(rules) == 1 else None
    fits = room is None or len(rows) * keys <= room
    height = max(1, min(STRIP, PAIRS // max(1, keys))) if fits else 1
    if not rules and fits:
        yield Tile(rows, readable)
    elif room is None and isinstance(rule, Band) and rule.before is None:
        yield from _triangle(rule, rows, readable, frame)
    elif len(rows) > height:
        middle = rows.start + len(rows) // 2
        yield from _divided(mask, range(rows.start, middle), frame, room)
        yield from _divided(mask, range(middle, rows.stop), frame, room)
    else:
        is_sparse = len(runs) > 1
        rule = mask if is_sparse or len(rules) > 1 else rule
        yield Tile(rows, readable, rule=rule, runs=tuple(runs) if is_sparse else ())


def _triangle(band: Band, rows: range, columns: range, frame: Frame) -> Iterator[Tile]:
    """The keys that all of these queries read, and a triangle beside them."""
    diagonal = band.within(rows, columns, frame).after  # the last key of the first query
    assert diagonal is not None
    if diagonal > 0:
        yield Tile(rows, columns[:diagonal])
    rows, columns = rows[max(0, -diagonal) :], columns[max(0, diagonal) :]
    yield Tile(rows, columns, triangle=True, joins=diagonal > 0)
