"""Bahdanau's attention against Luong's: one recurrent translator each, the same minutes of training.

python benchmarks/quality/attentions.py RUNS [--minutes 15 | --steps N] [--threads 1] [--only NAME ...]
    [--out benchmarks/results/attentions.json]

Spanish to English on Tatoeba (the folder REGARD_DATA names), the sizes of recurrent.toml with
a decoder as wide as the encoder's states, so that dot products can be taken. Trainings that were
interrupted go on; finished ones are only measured. --steps gives each the same number of updates instead
of the same time, for machines that are not quiet.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from _measure import write
from _training import progress, settings, train_for, train_to

from regard.translation.evaluation.scores import measure
from regard.translation.text.corpora import Tsv, read_pairs
from regard.translation.translator import Translator

CONFIGURATION = Path(__file__).with_name("recurrent.toml")
VARIANTS = {
    "bahdanau": {"attention": "bahdanau", "score": "additive"},
    "luong dot": {"attention": "luong", "score": "dot"},
    "luong general": {"attention": "luong", "score": "general"},
    "luong concat": {"attention": "luong", "score": "concat"},
    "luong dot, no feeding": {"attention": "luong", "score": "dot", "input_feeding": "false"},
    "luong general, no feeding": {
        "attention": "luong",
        "score": "general",
        "input_feeding": "false",
    },
    "luong concat, no feeding": {"attention": "luong", "score": "concat", "input_feeding": "false"},
    "no attention": {"attention": "none"},
}


def quality(run: Path, split: str) -> dict[str, float | None]:
    """BLEU, chrF and exact matches on the valid or test file."""
    file = Path(os.environ["REGARD_DATA"]) / "tatoeba-spa-eng" / f"{split}.tsv"
    pairs = read_pairs(Tsv(file, source_column=1, target_column=0)).pairs
    translations = Translator.open(run).translate([pair.source for pair in pairs])
    scores = measure(
        [each.text for each in translations],
        [pair.target for pair in pairs],
        measures=["bleu", "chrf", "exact"],
    )
    return {"bleu": scores.bleu, "chrf": scores.chrf, "exact": scores.exact}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, metavar="RUNS")
    parser.add_argument("--minutes", type=float, default=15)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    table: list[dict[str, Any]] = []
    for name in options.only:
        changes: dict[str, object] = {
            f"model__{key}": value for key, value in VARIANTS[name].items()
        }
        place = options.runs / name.replace(", ", "-").replace(" ", "-")
        changes |= {"model__decoder_width": 512, "training__threads": options.threads}
        if options.steps:
            run = train_to(options.steps, str(CONFIGURATION), place, *settings(**changes))
        else:
            run = train_for(options.minutes, str(CONFIGURATION), place, *settings(**changes))
        took = progress(run)
        table.append(
            {
                "attention": name,
                "steps": took["step"],
                "minutes": took["seconds"] / 60,
                "target_tokens": took["target_tokens"],
                "valid": quality(run, "valid"),
                "test": quality(run, "test"),
            }
        )
        print(table[-1], flush=True)
        if options.out:
            write(options.out, {"configuration": CONFIGURATION.name, "table": table})


if __name__ == "__main__":
    main()
