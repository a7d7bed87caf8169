"""Masks of positions: regard.attend beside torch's fused attention with the mask written out, and cut to fit.

python benchmarks/masks.py [--threads 1] [--rounds 11] [--seconds 3] [--lengths 2048 4096 8192 16384] [--heads 1]
    [--flex] [--missing] [--out benchmarks/results/masks.json]

"cut to fit" is the fastest way to call F.scaled_dot_product_attention that we know for each mask: blocks of a window,
keys cut to their length, one call for each document. Each mask needs code of its own. "written out" is measured up to
4,096 positions. Both are measured with dropout as well, and one window with ALiBi over one head. "flex" is
flex_attention, compiled for each mask and length; on a processor it has no backward pass. Seconds are those of the
processor, in turns. A row takes as many rounds as --rounds says, but no more, after the first, than fit into --seconds;
it says how many. The file is written after each row, and keeps the rows that are not measured now; --missing measures
only those that it does not hold.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from _measure import write
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import regard
from regard import masks
from regard.positions import Alibi

WINDOW, DOCUMENTS, WIDTH = 128, 8, 64
SLOPE = 2**-8  # of ALiBi for one head
CAUSAL = masks.causal(align="start")
LARGEST = 4096  # positions of a mask that is written out
Attend = Callable[..., Tensor]
sdpa = F.scaled_dot_product_attention


def window(
    query: Tensor, key: Tensor, value: Tensor, slope: float | None = None, **how: float
) -> Tensor:
    """Blocks of queries over their own keys and those of the block before."""
    readings = []
    for start in range(0, query.shape[-2], WINDOW):
        first, stop = max(0, start - WINDOW), start + WINDOW
        readable = torch.ones(WINDOW, stop - first, dtype=torch.bool)
        readable = readable.tril(start - first).triu(start - first - WINDOW)
        if slope is not None:
            distances = torch.arange(start, stop)[:, None] - torch.arange(first, stop)
            readable = torch.where(readable, -slope * distances.abs(), -torch.inf)
        sides = key[..., first:stop, :], value[..., first:stop, :]
        readings.append(sdpa(query[..., start:stop, :], *sides, attn_mask=readable, **how))
    return torch.cat(readings, -2)


def padded(query: Tensor, key: Tensor, value: Tensor, causal: bool = True, **how: float) -> Tensor:
    keys = length_of(key.shape[-2])
    return sdpa(query, key[..., :keys, :], value[..., :keys, :], is_causal=causal, **how)


def documents(query: Tensor, key: Tensor, value: Tensor, **how: float) -> Tensor:
    size = query.shape[-2] // DOCUMENTS
    sides = (side.split(size, -2) for side in (query, key, value))
    return torch.cat([sdpa(*document, **how) for document in zip(*sides, strict=True)], -2)


def prefix(query: Tensor, key: Tensor, value: Tensor, **how: float) -> Tensor:
    """The prefix over itself; the rest over all, with the triangle written out."""
    first, length = query.shape[-2] // 4, query.shape[-2]
    readable = torch.ones(length - first, length, dtype=torch.bool).tril(first)
    start = sdpa(query[..., :first, :], key[..., :first, :], value[..., :first, :], **how)
    later = sdpa(query[..., first:, :], key, value, attn_mask=readable, **how)
    return torch.cat([start, later], -2)


def length_of(keys: int) -> int:
    """The keys that are no padding: two of five."""
    return 2 * keys // 5


MASKS: dict[str, tuple[Callable[[int], masks.Mask], Attend]] = {
    "causal": (lambda n: CAUSAL, lambda *sides, **how: sdpa(*sides, is_causal=True, **how)),
    "window": (lambda n: masks.band(WINDOW, 0), window),
    "window, ALiBi": (lambda n: masks.band(WINDOW, 0), partial(window, slope=SLOPE)),
    "causal & padding": (lambda n: CAUSAL & masks.padding([length_of(n)]), padded),
    "padding": (lambda n: masks.padding([length_of(n)]), partial(padded, causal=False)),
    "documents": (lambda n: masks.documents(torch.arange(n) * DOCUMENTS // n), documents),
    "packed": (lambda n: masks.packed([n // DOCUMENTS] * DOCUMENTS), documents),
    "prefix": (lambda n: CAUSAL | masks.padding([n // 4]), prefix),
}
# The same masks as functions for flex_attention.
FUNCTIONS: dict[str, Callable[[int], Any]] = {
    "causal": lambda n: lambda b, h, q, k: q >= k,
    "window": lambda n: lambda b, h, q, k: (q >= k) & (q - k <= WINDOW),
    "causal & padding": lambda n: lambda b, h, q, k: (q >= k) & (k < length_of(n)),
    "padding": lambda n: lambda b, h, q, k: k < length_of(n),
    "documents": lambda n: lambda b, h, q, k: q * DOCUMENTS // n == k * DOCUMENTS // n,
    "prefix": lambda n: lambda b, h, q, k: (q >= k) | (k < n // 4),
}
FUNCTIONS |= {"window, ALiBi": FUNCTIONS["window"], "packed": FUNCTIONS["documents"]}
PASSES = {"forward": 0.0, "both": 0.0, "both, dropout": 0.1}


def alibi(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return score - SLOPE * (q - k).abs()


def flex(name: str, length: int) -> Attend:
    """flex_attention, which is compiled in its first call."""
    torch.compiler.reset()
    blocks = create_block_mask(FUNCTIONS[name](length), None, None, length, length, device="cpu")
    changed = {"score_mod": alibi} if "ALiBi" in name else {}
    return partial(torch.compile(flex_attention, dynamic=False), block_mask=blocks, **changed)


def compare(
    name: str, length: int, heads: int, passes: str, rounds: int, limit: float, has_flex: bool
) -> dict[str, Any]:
    """Median seconds of ours, with the mask written out, of flex and cut to fit, in at most `rounds` turns.

    There are fewer turns, but one at least, where they would take longer than the limit, in seconds.
    """
    rule, cut = MASKS[name]
    torch.manual_seed(0)
    trains, dropout = passes != "forward", PASSES[passes]
    sides = [torch.randn(1, heads, length, WIDTH, requires_grad=trains) for _ in range(3)]
    mask, bias = rule(length), Alibi(1) if "ALiBi" in name else None
    attends: dict[str, Attend] = {
        "ours": lambda *sides: regard.attend(*sides, mask=mask, bias=bias, dropout=dropout)
    }
    if length <= LARGEST and bias is None:
        dense = mask.dense((1, heads), length, length)
        attends["written out"] = partial(sdpa, attn_mask=dense, dropout_p=dropout)
    if has_flex and not trains:
        attends["flex"] = flex(name, length)
    attends["cut to fit"] = partial(cut, dropout_p=dropout)
    upstream, expected = torch.randn(1, heads, length, WIDTH), None
    seconds: dict[str, list[float]] = {way: [] for way in attends}
    turn, spent = 0, 0.0
    # The first turn warms up. Every other one goes backwards, so that ours and cut to fit come as often after a large
    # matrix, whose memory the system takes back and has to give again.
    while turn < 2 or (turn <= rounds and spent * turn / (turn - 1) <= limit):
        for way in list(attends)[:: -1 if turn % 2 else 1]:
            start = time.process_time()
            reading = attends[way](*sides)
            if trains:
                torch.autograd.grad(reading, sides, upstream)
            if turn:
                seconds[way].append(time.process_time() - start)
                spent += seconds[way][-1]
            elif not dropout:
                expected = reading.detach() if expected is None else expected
                assert torch.allclose(reading, expected, atol=1e-4)
            del reading
        turn += 1
    medians = {way: statistics.median(each) for way, each in seconds.items()}
    ours = medians["ours"]
    ratios = {f"over {way}": ours / seconds for way, seconds in medians.items() if way != "ours"}
    return {
        "mask": name,
        "length": length,
        "heads": heads,
        "pass": passes,
        "rounds": turn - 1,
        **medians,
        **ratios,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--seconds", type=float, default=3.0, help="for the rounds of a row")
    parser.add_argument("--lengths", type=int, nargs="+", default=[2048, 4096, 8192, 16384])
    parser.add_argument("--heads", type=int, nargs="+", default=[1])
    parser.add_argument("--flex", action="store_true", help="half a minute more for each mask")
    parser.add_argument("--missing", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows: dict[tuple[int, int, str, str], dict[str, Any]] = {}
    if options.out and options.out.exists():
        stored = json.loads(options.out.read_text())["masks"]
        rows = {
            (row["length"], row.setdefault("heads", 1), row["mask"], row["pass"]): row
            for row in stored
        }
    for place in product(options.lengths, options.heads, MASKS, PASSES):
        length, heads, name, passes = place
        if (options.missing and place in rows) or (heads > 1 and "ALiBi" in name):
            continue
        with torch.set_grad_enabled(passes != "forward"):
            limits = options.rounds, options.seconds
            rows[place] = row = compare(name, length, heads, passes, *limits, options.flex)
        print({k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}, flush=True)
        if options.out:
            write(options.out, {"masks": list(rows.values())}, keeps=options.out)


if __name__ == "__main__":
    main()
