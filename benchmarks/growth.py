"""What a training step costs as the work grows: target tokens a second and peak memory.

python benchmarks/growth.py [--rounds 3] [--out benchmarks/results/growth.json] [--plot]

One thing grows at a time: positions a batch, words a sentence, width (feed-forward four times as wide) and
vocabulary; the others are 2,048, 16, 256 and 8,000. Sentences of random words, 3 + 3 layers, 4 heads, dropout
0.1, float32, one thread. Each cell is a process of its own: the rate is of its quickest step after one that is not
counted, memory the most it ever held (model, gradients, moments and torch itself included). Cells that the file holds
are kept. `--plot` draws the file.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

BASE = {"positions": 2048, "words": 16, "width": 256, "vocabulary": 8000}
GROWN = {
    "positions": (256, 512, 1024, 2048, 4096, 8192),
    "words": (4, 8, 16, 32, 64, 128, 256),
    "width": (64, 128, 256, 512),
    "vocabulary": (1000, 4000, 8000, 16000, 32000),
}
AXES = {
    "positions": "positions a batch",
    "words": "words a sentence",
    "width": "width",
    "vocabulary": "vocabulary",
}


def cell(positions: int, words: int, width: int, vocabulary: int, rounds: int) -> dict[str, float]:
    """One measurement, in this process."""
    import numpy as np
    import torch

    from regard.translation.models.transformer.model import Transformer
    from regard.translation.settings.transformer import TransformerSettings
    from regard.translation.text.batches import Batch
    from regard.translation.training.step import Objective

    torch.set_num_threads(1)
    torch.manual_seed(0)
    settings = TransformerSettings(width=width, feed_forward=4 * width)
    model = Transformer(settings, vocabulary, vocabulary).train()
    objective, rows = Objective(model, 0.1), max(1, positions // words)
    optimiser = torch.optim.Adam(model.parameters(), 1e-4, fused=True)
    source, before, after = (torch.randint(4, vocabulary, (rows, words)) for _ in range(3))
    lengths = torch.full((rows,), words)
    batch = Batch(source, lengths, before, after, lengths, np.arange(rows))
    seconds = []
    for _ in range(1 + rounds):
        start = time.perf_counter()
        (objective(batch) / batch.target_tokens).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - start)
    return {
        "target tokens a second": batch.target_tokens / min(seconds[1:]),
        "peak MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def plot(path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    cells = json.loads(path.read_text())["growth"]
    figure, panels = plt.subplots(2, 4, figsize=(13, 5), sharex="col", layout="constrained")
    for column, (name, label) in enumerate(AXES.items()):
        for row, quantity in enumerate(("target tokens a second", "peak MiB")):
            panel = panels[row][column]
            curve = cells[name]
            panel.plot(
                [c[name] for c in curve], [c[quantity] for c in curve], "o-", color="#0b6e8a"
            )
            panel.set_xscale("log", base=2)
            panel.set_ylim(0, 1.1 * max(c[quantity] for c in curve))
            panel.grid(alpha=0.3)
            if column == 0:
                panel.set_ylabel(quantity)
        panels[1][column].set_xlabel(label)
        panels[1][column].set_xticks([c[name] for c in cells[name]])
        panels[1][column].set_xticklabels([f"{c[name]:,}" for c in cells[name]], fontsize=7)
    figure.suptitle("Training a Transformer of 3 + 3 layers, one thread, float32")
    figure.savefig(path.with_suffix(".png"), dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=GROWN, default=list(GROWN))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/growth.json"))
    parser.add_argument("--plot", action="store_true")
    parser.add_argument("--cell", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cell:
        print(json.dumps(cell(**options.cell, rounds=options.rounds)))
        return
    if options.plot:
        plot(options.out)
        return
    from _measure import write

    cells: dict[str, Any] = {}
    if options.out.exists():
        cells = json.loads(options.out.read_text())["growth"]
    for name in options.only:
        cells.setdefault(name, [])
        for size in GROWN[name]:
            if any(cell[name] == size for cell in cells[name]):
                continue
            sizes = {**BASE, name: size}
            command = [sys.executable, __file__, "--cell", json.dumps(sizes)]
            command += ["--rounds", str(options.rounds)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            cells[name].append({**sizes, **json.loads(done.stdout)})
            print(cells[name][-1], flush=True)
            write(options.out, {"growth": cells})


if __name__ == "__main__":
    main()
