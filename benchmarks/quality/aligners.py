"""Word alignments of a statistical aligner and of the diagonal, on the gold links our models are measured on.

python benchmarks/quality/aligners.py --eflomal eflomal-align [--out benchmarks/results/aligners.json]

eflomal is given what our translators learn from: the Tatoeba training pairs, and the sentences to
align behind them, of which it sees both sides (ours do, too, when they align). Install it elsewhere
and name it here. The folder REGARD_DATA names holds corpora and gold.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from _eflomal import align
from _measure import write

from regard.translation.evaluation.alignment import Link, diagonal_links, measure_alignment
from regard.translation.evaluation.gold import Gold, read_gold
from regard.translation.text.corpora import Tsv, read_pairs

GOLD = {
    "golden en-es dev": ("wa-golden-europarl/en-es.dev.jsonl", "tatoeba-spa-eng/train.tsv"),
    "golden en-fr dev": ("wa-golden-europarl/en-fr.dev.jsonl", "tatoeba-fra-eng/train.tsv"),
    "Hansards dev": ("wa-enfr-hansards/dev.jsonl", "tatoeba-fra-eng/train.tsv"),
}


def eflomal(program: str, gold: Gold, corpus: Path) -> list[set[Link]]:
    """Links of the gold's sentences, learnt together with a corpus."""
    asked = gold.words or []
    known = [(pair.source.split(), pair.target.split()) for pair in read_pairs(Tsv(corpus)).pairs]
    return align(program, [*known, *asked])[-len(asked) :]


def scores(found: Sequence[set[Link]], gold: Gold) -> dict[str, float]:
    measured = measure_alignment(found, gold.sure, gold.possible)
    return {"aer": measured.aer, "precision": measured.precision, "recall": measured.recall}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--eflomal", required=True, metavar="PROGRAM")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    data = Path(os.environ["REGARD_DATA"])
    table: dict[str, Any] = {}
    for name, (file, corpus) in GOLD.items():
        gold = read_gold(data / file)
        lengths = [(len(a), len(b)) for a, b in gold.words or []]
        table[name] = {
            "sentences": len(gold.sure),
            "diagonal": scores([diagonal_links(*each) for each in lengths], gold),
            "eflomal": scores(eflomal(options.eflomal, gold, data / corpus), gold),
        }
        print(name, table[name], flush=True)
    if options.out:
        write(options.out, {"table": table})


if __name__ == "__main__":
    main()
