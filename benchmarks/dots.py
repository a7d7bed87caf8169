"""Dot-product attention: regard.attend beside F.scaled_dot_product_attention, in turns.

python benchmarks/dots.py [--threads 2] [--seconds 60] [--out benchmarks/results/dots.json]

The peer is given what it takes ready made: its own flag for a causal mask, booleans for padding. Ours
gets the rule (`masks.causal`, `masks.padding`) with every call, as a model gives it.
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
from regard.attention import masks

# batch, heads, queries, keys, width
SIZES = [(64, 8, 30, 30, 32), (16, 8, 128, 128, 64), (8, 8, 512, 512, 64), (64, 8, 1, 64, 32)]
MASKS = ("none", "causal", "padding")


def pair(size: tuple[int, ...], mask: str, trains: bool) -> tuple[Callable[[], Any], ...]:
    """Ours and theirs, forward alone or forward and backward."""
    batch, heads, queries, keys, width = size
    torch.manual_seed(0)
    shapes = [(batch, heads, length, width) for length in (queries, keys, keys)]
    tensors = [torch.randn(shape).requires_grad_(trains) for shape in shapes]
    lengths = torch.randint(keys // 2, keys + 1, (batch,))
    readable = (torch.arange(keys) < lengths[:, None])[:, None, None, :]
    rule = {"none": None, "causal": masks.causal(align="start"), "padding": masks.padding(lengths)}
    flags: dict[str, dict[str, Any]] = {
        "none": {},
        "causal": {"is_causal": True},
        "padding": {"attn_mask": readable},
    }

    def ours() -> Tensor:
        return regard.attend(*tensors, mask=rule[mask])

    def theirs() -> Tensor:
        return F.scaled_dot_product_attention(*tensors, **flags[mask])

    assert torch.allclose(ours(), theirs(), atol=1e-5)
    if not trains:
        return ours, theirs
    upstream = torch.randn(shapes[0])
    return tuple(
        lambda run=run: torch.autograd.grad(run(), tensors, upstream) for run in (ours, theirs)
    )


def seconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def compare(runs: tuple[Callable[[], Any], ...], budget: float) -> dict[str, float]:
    """Medians of both, run in turns for about this many seconds, and the median of the ratios."""
    once = [seconds(run) + seconds(run) for run in runs]
    rounds = max(7, min(400, int(budget / sum(once))))
    turns: list[list[float]] = [[], []]
    for turn in range(rounds):
        order = (0, 1) if turn % 2 else (1, 0)  # neither always finds the other's caches
        for which in order:
            turns[which].append(seconds(runs[which]))
    ratios = [own / their for own, their in zip(*turns, strict=True)]
    ours, theirs = (statistics.median(each) for each in turns)
    return {
        "ours": ours,
        "theirs": theirs,
        "ratio": ours / theirs,
        "median ratio of pairs": statistics.median(ratios),
        "rounds": rounds,
    }


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """A bar for each: our time over theirs."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 0.28 * len(rows) + 1.2), layout="constrained")
    names = [f"{'x'.join(map(str, r['size']))} {r['mask']}, {r['pass']}" for r in rows]
    axes.barh(names, [r["ratio"] for r in rows], color="#4477aa")
    axes.axvline(1.0, color="black", linewidth=1)
    axes.axvline(1.05, color="black", linewidth=1, linestyle=":")
    axes.invert_yaxis()
    axes.set_xlabel("regard.attend over F.scaled_dot_product_attention (dotted: 5% more)")
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = []
    budget = options.seconds / (len(SIZES) * len(MASKS) * 2)
    for size in SIZES:
        for mask in MASKS:
            for trains in (False, True):
                row = {"size": size, "mask": mask, "pass": "both" if trains else "forward"}
                with torch.set_grad_enabled(trains):
                    rows.append(row | compare(pair(size, mask, trains), budget))
                print(
                    row, {k: round(v, 6) for k, v in rows[-1].items() if k not in row}, flush=True
                )
    if options.out:
        write(options.out, {"dots": rows})
        draw(rows, options.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
