"""Masks of positions: regard.attend beside torch's fused attention with the mask written out, and cut to fit.

python benchmarks/masks.py [--threads 1] [--rounds 5] [--lengths 2048 8192] [--out benchmarks/results/masks.json]

"cut to fit" is the fastest way to call F.scaled_dot_product_attention that we know for each mask: blocks of a window,
keys cut to their length, one call for each document. Each mask needs code of its own. Seconds are those of the
processor, in turns.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from _measure import write
from torch import Tensor
from torch.nn import functional as F

import regard
from regard import masks

WINDOW, DOCUMENTS, WIDTH = 128, 8, 64
CAUSAL = masks.causal(align="start")
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
sdpa = F.scaled_dot_product_attention


def window(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Blocks of queries over their own keys and those of the block before."""
    readings = []
    for start in range(0, query.shape[-2], WINDOW):
        first, stop = max(0, start - WINDOW), start + WINDOW
        readable = torch.ones(WINDOW, stop - first, dtype=torch.bool)
        readable = readable.tril(start - first).triu(start - first - WINDOW)
        sides = key[..., first:stop, :], value[..., first:stop, :]
        readings.append(sdpa(query[..., start:stop, :], *sides, attn_mask=readable))
    return torch.cat(readings, -2)


def padded(query: Tensor, key: Tensor, value: Tensor, causal: bool = True) -> Tensor:
    keys = length_of(key.shape[-2])
    return sdpa(query, key[..., :keys, :], value[..., :keys, :], is_causal=causal)


def documents(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    size = query.shape[-2] // DOCUMENTS
    sides = (side.split(size, -2) for side in (query, key, value))
    return torch.cat([sdpa(*document) for document in zip(*sides, strict=True)], -2)


def prefix(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The prefix over itself; the rest over all, with the triangle written out."""
    first, length = query.shape[-2] // 4, query.shape[-2]
    readable = torch.ones(length - first, length, dtype=torch.bool).tril(first)
    start = sdpa(query[..., :first, :], key[..., :first, :], value[..., :first, :])
    return torch.cat([start, sdpa(query[..., first:, :], key, value, attn_mask=readable)], -2)


def length_of(keys: int) -> int:
    """The keys that are no padding: two of five."""
    return 2 * keys // 5


MASKS: dict[str, tuple[Callable[[int], masks.Mask], Attend]] = {
    "causal": (lambda n: CAUSAL, lambda *sides: sdpa(*sides, is_causal=True)),
    "window": (lambda n: masks.band(WINDOW, 0), window),
    "causal & padding": (lambda n: CAUSAL & masks.padding([length_of(n)]), padded),
    "padding": (
        lambda n: masks.padding([length_of(n)]),
        lambda *sides: padded(*sides, causal=False),
    ),
    "documents": (lambda n: masks.documents(torch.arange(n) * DOCUMENTS // n), documents),
    "prefix": (lambda n: CAUSAL | masks.padding([n // 4]), prefix),
}


def compare(name: str, length: int, both: bool, rounds: int) -> dict[str, Any]:
    """Median seconds of ours, cut to fit, and with the mask written out: forward, or with the backward pass."""
    rule, cut = MASKS[name]
    torch.manual_seed(0)
    sides = [torch.randn(1, 1, length, WIDTH, requires_grad=both) for _ in range(3)]
    mask = rule(length)
    dense = mask.dense((1, 1), length, length)
    attends: dict[str, Attend] = {
        "ours": lambda *sides: regard.attend(*sides, mask=mask),
        "cut to fit": cut,
        "written out": lambda *sides: sdpa(*sides, attn_mask=dense),
    }
    upstream = torch.randn(1, 1, length, WIDTH)
    seconds: dict[str, list[float]] = {way: [] for way in attends}
    for turn in range(rounds + 1):
        for way, attend in attends.items():
            start = time.process_time()
            reading = attend(*sides)
            if both:
                torch.autograd.grad(reading, sides, upstream)
            if turn:  # the first turn warms up
                seconds[way].append(time.process_time() - start)
            assert torch.allclose(reading, regard.attend(*sides, mask=mask), atol=1e-4)
    medians = {way: statistics.median(each) for way, each in seconds.items()}
    ours = medians["ours"]
    ratios = {f"over {way}": ours / medians[way] for way in ("cut to fit", "written out")}
    return {
        "mask": name,
        "length": length,
        "pass": "both" if both else "forward",
        **medians,
        **ratios,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lengths", type=int, nargs="+", default=[2048, 8192])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = []
    for length in options.lengths:
        for name in MASKS:
            for both in (False, True):
                with torch.set_grad_enabled(both):
                    rows.append(compare(name, length, both, options.rounds))
                print(
                    {k: round(v, 4) if isinstance(v, float) else v for k, v in rows[-1].items()},
                    flush=True,
                )
    if options.out:
        write(options.out, {"masks": rows})


if __name__ == "__main__":
    main()
