"""A mask as tiles: rectangles of queries and keys outside of which nothing may be read."""

from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from regard.attention.masks.mask import Mask, Place
from regard.attention.masks.positions import Band
from regard.attention.shapes import Frame

STRIP = 128  # queries that are not divided any further
FEW = 16  # queries of a section, on average, that is worth a tile of its own


class Tile(NamedTuple):
    """Some queries and some keys. No query reads a key in two tiles.

    Attributes:
        rows, columns: the positions of the queries and of the keys.
        triangle: whether query i of the tile reads its keys up to i, and not all of them.
        window: which keys may be read, (rows, columns); None where the other two say it all.
        joins: whether the tile before has the same queries, or these among others.
    """

    rows: range
    columns: range
    triangle: bool = False
    window: Tensor | None = None
    joins: bool = False


def tiles(mask: Mask, frame: Frame) -> list[Tile]:
    """The tiles of a mask that is the same for all batch entries."""
    breaks = mask.breaks(frame)
    if len(breaks) * FEW > frame.queries:
        breaks = []
    strips = pairwise([0, *breaks, frame.queries])
    return [tile for strip in strips for tile in _divided(mask, range(*strip), frame)]


def _divided(mask: Mask, rows: range, frame: Frame) -> Iterator[Tile]:
    readable, common = mask.reach(rows, frame)
    if not readable:
        return
    rules = mask.rules(Place(rows, readable, frame))
    rule = rules[0] if len(rules) == 1 else None
    if not rules:
        yield Tile(rows, readable)
    elif isinstance(rule, Band) and rule.before is None:
        yield from _triangle(rule, rows, readable, frame)
    elif len(rows) > STRIP:
        middle = rows.start + len(rows) // 2
        yield from _divided(mask, range(rows.start, middle), frame)
        yield from _divided(mask, range(middle, rows.stop), frame)
    elif len(common) > 2 * len(rows):
        yield Tile(rows, common)
        edges = range(readable.start, common.start), range(common.stop, readable.stop)
        for columns in filter(len, edges):
            window = _window(rule or mask, rows, columns, frame)
            yield Tile(rows, columns, window=window, joins=True)
    else:
        yield Tile(rows, readable, window=_window(rule or mask, rows, readable, frame))


def _triangle(band: Band, rows: range, columns: range, frame: Frame) -> Iterator[Tile]:
    """The keys that all of these queries read, and a triangle beside them."""
    diagonal = band.within(rows, columns, frame).after  # the last key of the first query
    assert diagonal is not None
    if diagonal > 0:
        yield Tile(rows, columns[:diagonal])
    rows, columns = rows[max(0, -diagonal) :], columns[max(0, diagonal) :]
    yield Tile(rows, columns, triangle=True, joins=diagonal > 0)


def _window(mask: Mask, rows: range, columns: range, frame: Frame) -> Tensor:
    if isinstance(mask, Band):
        return _band_window(mask.within(rows, columns, frame), len(rows), len(columns))
    at, of = (torch.arange(side.start, side.stop, device=frame.device) for side in (rows, columns))
    window = mask.window(at, of, frame)
    return window.reshape(window.shape[-2:]).expand(len(rows), len(columns))


@lru_cache(maxsize=16)
def _band_window(band: Band, rows: int, columns: int) -> Tensor:
    """The strips of a band are alike, so one window serves them all."""
    return band.dense((), rows, columns)
