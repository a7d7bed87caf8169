"""Sizes of tiles for dot products under a mask on a GPU, and from which length on they are ahead of a written mask.

python benchmarks/gpu_tiles.py [--out benchmarks/results/gpu_tiles.json]

Tiles: milliseconds of a CUDA graph, without Python, 8 heads, after a comparison with float64. Lengths: microseconds
between events on the GPU, Python included, forward and both passes. The tables of `triton/sizes.py` and the
thresholds of `triton/kernel.py` are chosen by these.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from _measure import write
from gpu import MASKS, graphed, measured, passes
from torch import Tensor
from torch.nn import functional as F

import regard
from regard.attention.kernels.additive.requests import rules_of
from regard.attention.kernels.triton import products, sizes
from regard.attention.kernels.triton.sizes import DotTiles, Tile
from regard.attention.shapes import Frame

HEADS, SHORT = 8, 512
FLOAT, BRAIN = torch.float32, torch.bfloat16
LIMITS = {FLOAT: 1e-5, BRAIN: 1e-2}  # of the error, as a share
CASES = [
    ("window", 8192), ("causal & padding", 8192), ("prefix", 8192), ("documents", 8192), ("window", 2048),
]  # fmt: skip
# Tiles of the reading, and of the gradients of queries and keys, by dtype and width.
READINGS: dict[tuple[torch.dtype, int], list[Tile]] = {
    (BRAIN, 64): [
        Tile(64, 64, 4, 3),
        Tile(128, 64, 8, 3),
        Tile(64, 128, 4, 3),
        Tile(128, 128, 8, 3),
    ],
    (FLOAT, 64): [Tile(64, 64, 4, 1), Tile(128, 64, 8, 1), Tile(128, 32, 4, 3), Tile(64, 32, 4, 1)],
    (BRAIN, 128): [Tile(64, 64, 4, 3), Tile(128, 64, 8, 3), Tile(64, 64, 4, 2)],
    (FLOAT, 128): [Tile(32, 64, 4, 1), Tile(32, 32, 4, 1), Tile(64, 32, 4, 1)],
}
GRADIENTS: dict[tuple[torch.dtype, int], list[tuple[Tile, Tile]]] = {
    (BRAIN, 64): [
        (Tile(64, 64, 4, 3), Tile(64, 32, 4, 3)), (Tile(64, 64, 4, 3), Tile(64, 64, 4, 3)),
        (Tile(128, 64, 8, 2), Tile(128, 64, 8, 2)), (Tile(64, 128, 8, 3), Tile(128, 64, 8, 3)),
    ],
    (FLOAT, 64): [
        (Tile(128, 64, 8, 1), Tile(128, 32, 8, 1)), (Tile(128, 64, 8, 1), Tile(128, 64, 8, 1)),
        (Tile(64, 64, 4, 1), Tile(64, 32, 4, 1)),
    ],
    (BRAIN, 128): [
        (Tile(64, 64, 4, 2), Tile(64, 32, 4, 2)), (Tile(64, 64, 4, 2), Tile(64, 64, 4, 2)),
    ],
    (FLOAT, 128): [
        (Tile(32, 32, 4, 1), Tile(32, 32, 4, 1)), (Tile(64, 32, 4, 1), Tile(64, 32, 4, 1)),
    ],
}  # fmt: skip


def draw(length: int, dtype: torch.dtype, width: int) -> list[Tensor]:
    torch.manual_seed(0)
    shape = (1, HEADS, length, width)
    return [torch.randn(shape, device="cuda", dtype=dtype).requires_grad_() for _ in range(3)]


def launched(
    tiles: DotTiles, name: str, length: int, sides: list[Tensor], backward: bool
) -> Callable[[], tuple[Tensor, ...]]:
    """The reading alone, or the gradients alone, with these tiles."""
    sizes.of_dots = lambda *widths: tiles  # type: ignore[assignment]
    products._plan.cache_clear()
    frame = Frame((1, HEADS), length, length, sides[0].device)
    runs = products.runs_of(rules_of(MASKS[name][0](length), frame), frame, tiles)
    query, key, value = (side.detach() for side in sides)
    factor = query.shape[-1] ** -0.5
    if not backward:
        return lambda: products._read((query, key, value), runs, factor)
    reading, norms = products._read((query, key, value), runs, factor)
    upstream = torch.ones_like(reading)
    return lambda: products._gradients(factor, upstream, query, key, value, reading, norms, *runs)


def error(tiles: DotTiles, sides: list[Tensor], backward: bool) -> float:
    """The largest difference from float64, as a share."""
    mask = MASKS["prefix"][0](SHORT).dense((1, HEADS), SHORT, SHORT, "cuda")
    doubles = [side.detach().double().requires_grad_() for side in sides]
    exact = F.scaled_dot_product_attention(*doubles, attn_mask=mask)
    actual = launched(tiles, "prefix", SHORT, sides, backward)()
    pairs = [(actual[0], exact)]
    if backward:
        gradients = torch.autograd.grad(exact, doubles, torch.ones_like(exact))
        pairs = list(zip(actual, gradients, strict=True))
    return max(((a.double() - b).norm() / b.norm()).item() for a, b in pairs)


def tiled(tiles: DotTiles, dtype: torch.dtype, width: int, backward: bool) -> dict[str, Any]:
    timed = tiles[1:] if backward else tiles[:1]
    row: dict[str, Any] = {
        "dtype": str(dtype), "width": width, "part": "gradients" if backward else "reading",
        "tiles": [(tile.outer, tile.inner, tile.warps, tile.stages) for tile in timed],
    }  # fmt: skip
    try:
        row["error"] = error(tiles, draw(SHORT, dtype, width), backward)
        runs = {}
        for name, length in CASES if row["error"] < LIMITS[dtype] else []:
            run = launched(tiles, name, length, draw(length, dtype, width), backward)
            runs[f"{name}, {length}"] = graphed(run)
        row |= measured(runs)
    except RuntimeError as failure:  # a tile may need more shared memory than there is
        row["failure"] = str(failure)[:100]
    return row


def lengths(length: int, dtype: torch.dtype, name: str) -> dict[str, Any]:
    """Both passes, Python included, beside torch's fused attention with the mask written out."""
    rule, sides = MASKS[name][0](length), draw(length, dtype, 64)
    dense = rule.dense((1, HEADS), length, length, "cuda")

    def triton(*sides: Tensor) -> Tensor:
        with regard.kernel("triton"):
            return regard.attend(*sides, mask=rule)

    def masked(*sides: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(*sides, attn_mask=dense)

    row = {"length": length, "dtype": str(dtype), "mask": name}
    return {**row, **passes({"triton": triton, "written out": masked}, sides, sides)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    results: dict[str, Any] = {"gpu": torch.cuda.get_device_name(), "lengths": [], "tiles": []}
    for dtype, names in ((BRAIN, (2048, 4096, 8192)), (FLOAT, (1024, 2048))):
        for length in names:
            for name in ("window", "causal & padding", "prefix"):
                results["lengths"].append(lengths(length, dtype, name))
                print(results["lengths"][-1], flush=True)
    for (dtype, width), readings in READINGS.items():
        pairs = GRADIENTS[dtype, width]
        ways = [(DotTiles(tile, *pairs[0]), False) for tile in readings]
        ways += [(DotTiles(readings[0], *pair), True) for pair in pairs]
        for tiles, backward in ways:
            results["tiles"].append(tiled(tiles, dtype, width, backward))
            print(results["tiles"][-1], flush=True)
    if options.out:
        write(options.out, results)


if __name__ == "__main__":
    main()
