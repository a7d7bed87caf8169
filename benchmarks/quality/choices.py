"""Word links read off every layer and head of translators, against gold links of another domain.

python benchmarks/quality/choices.py MODEL [MODEL ...] [--out benchmarks/results/choices.json]

MODEL: es-en, es-en-recurrent, or the folder of a run from Spanish to English or from English to
French. The folder REGARD_DATA names holds the gold links: sentences of the European Parliament
and of the Canadian one, for models that learnt Tatoeba's everyday sentences. What `regard align
--choose` prints, kept as figures: for each layer, head and row the error rates by argmax, as it
is and balanced; the best of all that was tried; chosen on one half and measured on the other.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from _measure import write

from regard.translation.aligning.selection import Chosen, choose
from regard.translation.aligning.word_attention import word_attentions
from regard.translation.evaluation.gold import read_gold
from regard.translation.translator import Translator

# By the languages of a model: the gold's name, its file, and whether its sides are exchanged.
GOLD = {
    ("es", "en"): [("golden en-es dev", "wa-golden-europarl/en-es.dev.jsonl", True)],
    ("en", "fr"): [
        ("Hansards dev", "wa-enfr-hansards/dev.jsonl", False),
        ("golden en-fr dev", "wa-golden-europarl/en-fr.dev.jsonl", False),
    ],
}


def described(selection: Chosen) -> dict[str, Any]:
    table: dict[str, dict[str, float]] = {}
    for each in selection.tried:
        choice = each.choice
        if choice.method != "argmax":
            continue
        layer = "all layers" if choice.layer is None else f"layer {choice.layer}"
        head = "mean" if choice.head is None else f"head {choice.head}"
        row = table.setdefault(f"{layer}, {head}, {choice.rows}", {})
        row["balanced" if choice.balanced else "as it is"] = each.scores.aer
    return {
        "by head": table,
        "diagonal": selection.diagonal.aer,
        "best": {"choice": str(selection.best.choice), "aer": selection.best.scores.aer},
        "chosen on one half, measured on the other": [
            each.scores.aer for each in selection.crossed
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    table: dict[str, Any] = {}
    for model in options.models:
        translator = Translator.open(model)
        data = translator.run.configuration.data
        for name, file, flip in GOLD[data.source_language, data.target_language]:
            gold = read_gold(Path(os.environ["REGARD_DATA"]) / file)
            gold = gold.flipped() if flip else gold
            attentions = word_attentions(translator.model, translator.tokenizers, gold.words or [])
            ours = described(choose(attentions, gold))
            table[f"{Path(model).name} on {name}"] = ours
            print(Path(model).name, name, {k: v for k, v in ours.items() if k != "by head"})
    if options.out:
        write(options.out, {"table": table})


if __name__ == "__main__":
    main()
