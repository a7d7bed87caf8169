"""Matrix products at the sizes of a search: ours and torch's.

python benchmarks/products.py [--threads 1] [--rounds 5] [--out benchmarks/results/products.json]

Rows 32 and 160 (a batch of 32, greedy and with a beam of 5), the products of a Transformer of width 256. The weights
of a model come from beyond the second-level cache; so here each product goes through 20 million weights, in as many
matrices as that takes. Figures are thousand million multiplications and additions a second. `regard` has its weights
packed beforehand.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _measure import interleaved, write
from numba import njit

from regard.translation.engines.compiled import products

SIZES = ((256, 256), (256, 768), (256, 1024), (1024, 256), (256, 8000))
WEIGHTS = 20_000_000


@njit(nogil=True, error_model="numpy")
def multiply(x, rows, depth, weights, width, tile, out):  # type: ignore[no-untyped-def]
    products.multiply(x, rows, depth, weights, 0, width, tile, out)


def runs(rows: int, depth: int, width: int) -> tuple[int, dict[str, Callable[[], Any]]]:
    """How many products each run is, and the runs."""
    torch.manual_seed(0)
    count = max(1, WEIGHTS // (depth * width))
    weights = [torch.randn(width, depth) for _ in range(count)]
    x, out, tile = torch.randn(rows, depth), np.zeros(rows * width, np.float32), room(1024)
    flat, panels = x.flatten().numpy(), [products.packed(weight).numpy() for weight in weights]
    halves, half = [weight.bfloat16() for weight in weights], x.bfloat16()

    def ours(weight: Any) -> None:
        multiply(flat, rows, depth, weight, width, tile, out)

    return count, {
        "regard, float32": lambda: [ours(each) for each in panels],
        "torch, float32": lambda: [x @ each.t() for each in weights],
        "torch, bfloat16": lambda: [half @ each.t() for each in halves],
    }


def room(numbers: int) -> Any:
    return np.zeros(numbers, np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    results = []
    for rows in (32, 160):
        for depth, width in SIZES:
            count, calls = runs(rows, depth, width)
            medians = interleaved(calls, options.rounds)
            work = count * rows * depth * width / 1e9
            speeds = {name: round(work / seconds, 1) for name, seconds in medians.items()}
            results.append({"rows": rows, "inputs": depth, "outputs": width, **speeds})
            print(results[-1], flush=True)
    if options.out:
        write(options.out, {"products": results})


if __name__ == "__main__":
    main()
