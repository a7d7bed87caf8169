"""BLEU by source length, with attention and without: what a fixed vector cannot hold.

python benchmarks/quality/lengths.py RUNS [--minutes 30] [--threads 1] [--out benchmarks/results/lengths.json]

The figure of Bahdanau et al. (arXiv 1409.0473, figure 2). Tatoeba sentences (the folder REGARD_DATA
names) are short, so one to six of them at a time are joined, in training and in test alike. Both
models are a GRU encoder-decoder of the sizes of recurrent.toml and train as long; the
one without attention has its decoder begin with the encoder's last states and sees no more.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from _measure import write
from _training import progress, settings, train_for

from regard.translation.evaluation.scores import measure
from regard.translation.text.corpora import Pair, Tsv, read_pairs
from regard.translation.translator import Translator

CONFIGURATION = Path(__file__).with_name("recurrent.toml")
JOINED = 6
TEST_LINES = 4500
# Source words: a bucket holds lengths from the one before (exclusive) to its own.
BUCKETS = (5, 10, 15, 20, 25, 30, 40, 50)
AT_LEAST = 200


def join(pairs: list[Pair], draw: np.random.Generator, passes: int = 1) -> list[Pair]:
    """Sentences in a random order, one to six at a time: each is used once a pass."""
    joined_pairs = []
    for _ in range(passes):
        order = list(draw.permutation(len(pairs)))
        while order:
            count = int(draw.integers(1, JOINED + 1))
            group, order = [pairs[i] for i in order[:count]], order[count:]
            joined_pairs.append(
                Pair(" ".join(p.source for p in group), " ".join(p.target for p in group))
            )
    return joined_pairs


def corpus(folder: Path) -> None:
    """train.tsv, valid.tsv and test.tsv of joined sentences."""
    for seed, split in enumerate(("train", "valid", "test")):
        source = Path(os.environ["REGARD_DATA"]) / "tatoeba-spa-eng" / f"{split}.tsv"
        pairs = read_pairs(Tsv(source, source_column=1, target_column=0)).pairs
        # One pass over the test file is 570 lines: more, in other company, fill the buckets.
        passes = 1 if split != "test" else 1 + TEST_LINES * (JOINED + 1) // (2 * len(pairs))
        joined_pairs = join(pairs, np.random.default_rng(seed), passes)
        text = "".join(f"{pair.source}\t{pair.target}\n" for pair in joined_pairs)
        (folder / f"{split}.tsv").write_text(text, encoding="utf-8")


def by_length(run: Path, test: Path) -> list[dict[str, Any]]:
    """BLEU of each bucket, beam 5."""
    pairs = read_pairs(Tsv(test)).pairs
    translations = Translator.open(run).translate([pair.source for pair in pairs], whole_lines=True)
    words = np.array([len(pair.source.split()) for pair in pairs])
    rows = []
    for above, limit in zip((0, *BUCKETS[:-1]), BUCKETS, strict=True):
        inside = np.flatnonzero((words > above) & (words <= limit))
        if len(inside) >= AT_LEAST:
            scores = measure(
                [translations[i].text for i in inside],
                [pairs[i].target for i in inside],
                measures=["bleu"],
            )
            rows.append({"words": [above + 1, limit], "lines": len(inside), "bleu": scores.bleu})
    return rows


def draw(table: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.5, 4), layout="constrained")
    for name, row_of_model in table.items():
        middle = [sum(row["words"]) / 2 for row in row_of_model["buckets"]]
        axes.plot(middle, [row["bleu"] for row in row_of_model["buckets"]], marker="o", label=name)
    axes.set_xlabel("words in the source")
    axes.set_ylabel("BLEU")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=160)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, metavar="RUNS")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    options.runs.mkdir(parents=True, exist_ok=True)
    if not (options.runs / "test.tsv").exists():
        corpus(options.runs)
    table: dict[str, Any] = {}
    for name, attention in (("attention", "bahdanau"), ("fixed vector", "none")):
        run = train_for(
            options.minutes,
            str(CONFIGURATION),
            options.runs / name.replace(" ", "-"),
            *("--data", str(options.runs)),
            *settings(
                data__train__tsv="train.tsv",
                data__valid__tsv="valid.tsv",
                data__source_column=0,
                data__target_column=1,
                model__attention=attention,
                training__threads=options.threads,
            ),
        )
        took = progress(run)
        table[name] = {
            "steps": took["step"],
            "minutes": took["seconds"] / 60,
            "buckets": by_length(run, options.runs / "test.tsv"),
        }
        print(name, table[name], flush=True)
    if options.out:
        write(options.out, {"configuration": CONFIGURATION.name, "table": table})
        draw(table, options.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
