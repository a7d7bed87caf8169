"""Which tiles of a block are read, against the mask itself."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch

from regard.attention import masks
from regard.attention.kernels.additive.requests import rules_of
from regard.attention.shapes import Frame

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
QUERIES, KEYS = 300, 330
END = masks.causal(align="end")
MASKS = {
    "everything": masks.padding([KEYS]),
    "causal": END,
    "window": masks.band(40, 3),
    "padding": masks.padding([KEYS, 0, 77]),
    "prefix": masks.causal(align="start") | masks.padding([90]),
    "documents": masks.documents(torch.arange(QUERIES) // 70, torch.arange(KEYS) // 90),
    "apart": masks.documents(torch.arange(QUERIES) // 70 % 2, torch.arange(KEYS) // 330),
}


@pytest.mark.parametrize("name", MASKS)
def test_runs_are_those_of_the_mask(name: str) -> None:
    from regard.attention.kernels.triton.products import runs_of
    from regard.attention.kernels.triton.sizes import DotTiles, Tile

    device = "cuda" if torch.cuda.is_available() else "cpu"
    mask, tile = MASKS[name], Tile(64, 32, 4)
    frame = Frame((3,), QUERIES, KEYS, torch.device(device))
    runs = runs_of(rules_of(mask, frame), frame, DotTiles(tile, tile, tile))
    dense = mask.dense((3,), QUERIES, KEYS, device).expand(3, QUERIES, KEYS)
    entries = runs.spans.shape[:-2].numel()
    for plane, table in ((dense, runs.by_queries), (dense.mT, runs.by_keys)):
        for entry in range(entries):
            blocks = plane[entry].split(64)
            assert len(blocks) == len(table[entry])
            for block, (begin, full_begin, full_end, end) in zip(
                blocks, table[entry].tolist(), strict=True
            ):
                read = block.any(0).nonzero().flatten().tolist()
                if read:
                    assert (begin, end) == (read[0], read[-1] + 1)
                else:
                    assert begin >= end
                if full_begin < full_end:
                    assert block[:, full_begin:full_end].all()
                    assert block.all(0).sum() == full_end - full_begin
                else:
                    full = block.all(0).nonzero().flatten()
                    assert not len(full) or full[-1] - full[0] + 1 > len(full)
