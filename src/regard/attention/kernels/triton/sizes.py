"""The sizes of tiles, as measured on an H100 (benchmarks/gpu.py).

A block of positions goes to each program, and another side passes by in smaller blocks. All are powers of two, which
Triton needs, of at least 16, which products of tiles need.
"""

from functools import lru_cache
from typing import NamedTuple

LEAST, LARGEST = 16, 128  # positions of a block
WIDEST = 256  # numbers of a stretch of the values
ENOUGH = 1056  # programs: eight for each multiprocessor of an H100


class Tile(NamedTuple):
    """Positions of the side whose blocks are programs, and of the other; numbers of a stretch of the values."""

    outer: int
    inner: int
    warps: int
    stages: int = 2
    wide: int = LEAST


def power(length: int) -> int:
    """The next power of two."""
    return max(LEAST, 1 << (length - 1).bit_length())


def stored(length: int) -> int:
    """The length with the last block filled up, for blocks of every size."""
    block = min(LARGEST, power(length))
    return -(-length // block) * block


def stretch(width: int) -> int:
    """The numbers of a stretch of the values."""
    return min(power(width), WIDEST)


def of_reading(queries: int, keys: int, width: int, entries: int) -> tuple[Tile, int]:
    """For the reading of additive attention, and how many programs share the keys of a block."""
    wide = stretch(width)
    outer = min(power(queries), max(LEAST, LARGEST // 2), max(LEAST, LARGEST // 4, 8192 // wide))
    inner = min(power(keys), 32)
    warps = 2 if queries > LARGEST // 4 else 4
    return Tile(outer, inner, warps, wide=wide), _shares(queries, keys, entries, outer, inner)


def of_gradients(length: int, inner_length: int, entries: int) -> tuple[Tile, int]:
    """For the gradients of additive attention, and how many programs share the other side of a block."""
    outer, inner = min(power(length), LARGEST), min(power(inner_length), 32)
    shares = _shares(length, inner_length, entries, outer, inner)
    return Tile(outer, inner, max(1, outer // 64)), shares


def _shares(length: int, inner_length: int, entries: int, outer: int, inner: int) -> int:
    blocks = -(-length // outer) * entries
    return max(1, min(ENOUGH // blocks, -(-inner_length // (2 * inner))))


def of_bias(queries: int, keys: int, hidden: int, width: int) -> Tile:
    """For the gradient of a bias of additive attention."""
    return Tile(min(32, power(queries)), min(32, power(keys)), 4, wide=stretch(width))


class DotTiles(NamedTuple):
    """Of dot products: for the reading, and for the gradients of queries and of keys, which are one call."""

    reading: Tile
    by_queries: Tile
    by_keys: Tile  # with the warps and stages of the queries


@lru_cache
def of_dots(depth: int, width: int, element_size: int) -> DotTiles:
    """For dot products."""
    narrow = max(depth, width) <= 64
    if element_size <= 2:
        stages = 3 if narrow else 2
        return DotTiles(Tile(64, 64, 4, 3), Tile(64, 64, 4, stages), Tile(64, 32, 4, stages))
    if narrow:
        return DotTiles(Tile(64, 64, 4, 1), Tile(128, 64, 8, 1), Tile(128, 32, 8, 1))
    return DotTiles(Tile(32, 64, 4, 1), Tile(32, 32, 4, 1), Tile(32, 32, 4, 1))
