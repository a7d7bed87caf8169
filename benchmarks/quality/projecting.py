"""Names, terms and tags over word links: where stretches of source words come to lie in the translation.

python benchmarks/quality/projecting.py --priors FILE [--out benchmarks/results/projecting.json]

Each stretch of one to four words of golden es-en (development) is carried over by the links of people and by those of
an aligner; the table has the percentage at the same place. FILE is what the first 40,000 pairs of Tatoeba taught:

    head -n 40000 $REGARD_DATA/tatoeba-spa-eng/train.tsv | awk -F'\\t' '{print $2 "\\t" $1}' > pairs.tsv
    regard align --adapt pairs.tsv --keep FILE > links.txt
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from _measure import write

from regard.translation.aligning.adapted import adapt
from regard.translation.aligning.aligner import Aligned, Aligner
from regard.translation.evaluation.alignment import measure_alignment
from regard.translation.evaluation.gold import read_gold
from regard.translation.linking.learning import chain_names
from regard.translation.linking.priors import Priors
from regard.translation.translator import Translator

GOLD = "wa-golden-europarl/en-es.dev.jsonl"
LONGEST = 4
Stretch = tuple[int, int, int]


def projected(pairs: Iterable[Aligned]) -> dict[Stretch, range]:
    """By sentence, begin and length, the place of each stretch of source words."""
    return {
        (number, start, length): pair.project(start, start + length)
        for number, pair in enumerate(pairs)
        for start in range(len(pair.source))
        for length in range(1, min(LONGEST, len(pair.source) - start) + 1)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--priors", required=True)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    gold = read_gold(Path(os.environ["REGARD_DATA"]) / GOLD).flipped()
    pairs = gold.words or []
    translator = Translator.open("es-en")
    priors = Priors.load(options.priors, chain_names())
    model = translator.model, translator.tokenizers
    alone, taught = adapt(pairs), adapt(pairs, priors=priors)
    attention = Aligner.of(translator.run, *model).align(pairs)
    aligners: dict[str, Iterable[Aligned]] = {
        "attention of es-en": attention,
        "learnt from these sentences": alone.aligned(),
        "... and attention": alone.attended(*model).aligned(),
        "with priors": taught.aligned(),
        "with priors and attention": taught.attended(*model).aligned(),
        "with priors, each sentence by itself": (
            next(adapt([pair], priors=priors).aligned()) for pair in pairs
        ),
    }
    empty = attention[0].weights[:0, :0]
    by_people = projected(
        Aligned(list(source), list(target), set(sure), empty)
        for (source, target), sure in zip(pairs, gold.sure, strict=True)
    )
    stretches = {key: places for key, places in by_people.items() if places}
    table: dict[str, Any] = {}
    for name, aligned in aligners.items():
        links = list(aligned)
        ours = projected(links)
        right = {key: ours[key] == places for key, places in stretches.items()}
        table[name] = {
            "aer": measure_alignment([pair.links for pair in links], gold.sure, gold.possible).aer,
            "right": 100 * sum(right.values()) / len(right),
            "right_of_single_words": 100
            * sum(hit for key, hit in right.items() if key[2] == 1)
            / sum(key[2] == 1 for key in right),
            "stretches": len(right),
        }
        print(name, table[name], flush=True)
    if options.out:
        write(options.out, {"table": table})


if __name__ == "__main__":
    main()
