"""Every tile of the pyramid agrees with the dense weights."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch.nn import functional as F

import regard
from regard.attention import masks
from regard.explorer.tiles import BASE, SIZE, Tiles


def look_of(queries: int, keys: int):
    generator = torch.Generator().manual_seed(0)
    query, key = (torch.randn(n, 8, generator=generator) * 2 for n in (queries, keys))
    return regard.look(query, key)


@pytest.mark.parametrize("shape", [(1, 1), (256, 256), (300, 257), (3, 1000)])
@pytest.mark.parametrize("reduce", ["max", "mean"])
def test_tiles_computed_from_the_look(shape, reduce):
    tiles, dense = Tiles(look_of(*shape)), look_of(*shape).weights()
    for level, size in enumerate(tiles.levels):
        cells = 1 << level
        for row in range(-(-size.rows // SIZE)):
            for column in range(-(-size.columns // SIZE)):
                tile = tiles.tile(level, row, column, reduce)
                assert tile.exact
                block = dense[row * SIZE * cells :, column * SIZE * cells :]
                block = block[: SIZE * cells, : SIZE * cells]
                pool = F.max_pool2d if reduce == "max" else F.avg_pool2d
                expected = pool(block[None], cells, ceil_mode=True)[0]
                torch.testing.assert_close(tile.numbers, expected, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("reduce", ["max", "mean"])
def test_levels_above_the_base_are_exact_after_the_pass(reduce):
    count = SIZE << BASE  # 8192: level 5 is one tile
    tiles = Tiles(look_of(count, 512))
    tile_before = tiles.tile(BASE, 0, 0, reduce)
    assert not tile_before.exact
    for strip in tiles.strips:
        tiles.add(strip, reduce)
    tile_after = tiles.tile(BASE, 0, 0, reduce)
    assert tile_after.exact
    expected = look_of(count, 512).map(256, 16, reduce=reduce)
    torch.testing.assert_close(tile_after.numbers, expected, atol=1e-3, rtol=1e-2)


@pytest.mark.parametrize("count", [10_000, 16_385])
def test_every_level_of_a_size_that_is_no_power_of_two_has_its_tiles(count):
    tiles = Tiles(look_of(count, 300))
    assert len(tiles.levels) > BASE + 1
    for level, size in enumerate(tiles.levels):
        last_rows = (size.rows - 1) // SIZE
        tile = tiles.tile(level, last_rows, 0, "max")
        assert tile.numbers.shape == (size.rows - last_rows * SIZE, min(SIZE, size.columns))
        assert tile.exact == (level < BASE)


def test_a_tile_outside_is_refused():
    with pytest.raises(IndexError, match="no tile"):
        Tiles(look_of(10, 10)).tile(0, 1, 0, "max")


def test_random_leaves_of_131072_tokens():
    count = 131_072
    generator = torch.Generator().manual_seed(1)
    query, key = (torch.randn(count, 16, generator=generator) for _ in range(2))
    look = regard.look(query, key, mask=regard.masks.causal(align="end"))
    tiles = Tiles(look)
    for row, column in torch.randint(count // SIZE, (4, 2), generator=generator).tolist():
        tile = tiles.tile(0, row, column, "max").numbers
        rows = torch.arange(row * SIZE, (row + 1) * SIZE)
        scores = (query[rows] @ key.T) / 4
        scores = scores.masked_fill_(torch.arange(count) > rows[:, None], -torch.inf)
        log_sum = scores.logsumexp(-1, keepdim=True)
        leaf = scores[:, column * SIZE : (column + 1) * SIZE]
        dense = (leaf - log_sum).double().exp().masked_fill(leaf == -torch.inf, torch.nan)
        torch.testing.assert_close(tile.double(), dense, atol=1e-5, rtol=0, equal_nan=True)


LENGTHS = torch.tensor([200])
DOCUMENTS = torch.tensor([[0] * 40 + [1] * 100 + [2] * 3 + [3] * 4 + [4] * 153])


@pytest.mark.parametrize(
    "mask",
    [
        masks.causal(align="end"),
        masks.band(9, 0),
        masks.padding(LENGTHS),
        masks.documents(DOCUMENTS),
    ],
    ids=["causal", "band", "padding", "documents"],
)
@pytest.mark.parametrize("reduce", ["max", "mean"])
def test_pixels_without_a_key_to_read_are_not_numbers(mask, reduce):
    vectors = torch.randn(1, 300, 8, generator=torch.Generator().manual_seed(0))
    tiles = Tiles(regard.look(vectors, vectors, mask=mask)[0])
    readable = tiles.look.readable()
    for level, size in enumerate(tiles.levels):
        cells = 1 << level
        for row, column in product(*(range(-(-n // SIZE)) for n in size[:2])):
            numbers = tiles.tile(level, row, column, reduce).numbers
            block = readable[row * SIZE * cells :, column * SIZE * cells :]
            expected = F.max_pool2d(block[None, : SIZE * cells].float(), cells, ceil_mode=True)[0]
            assert torch.equal(~numbers.isnan(), expected[:, : numbers.shape[1]].bool())
