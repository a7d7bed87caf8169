"""Word links learnt from the text alone, by `regard align --adapt` and by eflomal, on gold links.

python benchmarks/quality/aligners.py [--eflomal eflomal-align] [--held-out] [--out benchmarks/results/word_links.json]
python benchmarks/quality/aligners.py --corpora --eflomal eflomal-align [--out benchmarks/results/aligners.json]

"alone": an aligner sees the sentences of the set and nothing else. "together": also those of the other sets of the same
languages; their links are not read. With `--corpora` eflomal sees the training pairs of our translators as well.
eflomal is a program of its own under another licence: install it elsewhere (`pip install eflomal`, which needs a C
compiler) and name it here; without it the table says so. The folder REGARD_DATA names holds corpora and gold.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from _eflomal import align
from _measure import write

from regard.translation.aligning.adapted import adapt
from regard.translation.aligning.aligner import Aligned
from regard.translation.evaluation.alignment import Link, diagonal_links, measure_alignment
from regard.translation.evaluation.gold import Gold, read_gold
from regard.translation.text.corpora import Tsv, read_pairs

TRIAL = "wa-enfr-hansards/trial_sure_only.jsonl"
# By set: its file, and files of the same languages. The choice of all constants was made on these.
SETS = {
    "golden en-es dev": ("wa-golden-europarl/en-es.dev.jsonl", ()),
    "golden en-fr dev": (
        "wa-golden-europarl/en-fr.dev.jsonl",
        ("wa-enfr-hansards/dev.jsonl", TRIAL),
    ),
    "Hansards dev": (
        "wa-enfr-hansards/dev.jsonl",
        (TRIAL, "wa-golden-europarl/en-fr.dev.jsonl"),
    ),
    "Romanian-English": ("wa-roen/test.jsonl", ()),
}
ALIBI = [
    f"alibi-fr-en/{name}.jsonl"
    for name in ("ChatBotte_MasterCat", "LAuberge_TheInn", "LaBarbeBleue_BlueBeard")
]
HELD_OUT = {"golden en-pt": ["wa-golden-europarl/en-pt.dev.jsonl"], "ALIBI fr-en": ALIBI}
CORPORA = {
    "golden en-es dev": "tatoeba-spa-eng/train.tsv",
    "golden en-fr dev": "tatoeba-fra-eng/train.tsv",
    "Hansards dev": "tatoeba-fra-eng/train.tsv",
}
# Alignment error rates with 1,130,551 and 48,681 pairs, as the page of eflomal gives them.
PUBLISHED = {
    "fast_align": {"Hansards, 1,130,551 pairs": 15.3, "Romanian-English, 48,681 pairs": 32.5},
    "eflomal": {"Hansards, 1,130,551 pairs": 8.1, "Romanian-English, 48,681 pairs": 29.8},
    "source": "github.com/robertostling/eflomal, README.md",
}
Pairs = list[tuple[list[str], list[str]]]


def joined(golds: Sequence[Gold]) -> Gold:
    """Several files as one set."""
    sure = [links for gold in golds for links in gold.sure]
    possible = [links for gold in golds for links in gold.possible]
    return Gold(sure, possible, [pair for gold in golds for pair in gold.words or []])


def scores(links: Sequence[set[Link]], gold: Gold) -> dict[str, float]:
    """The scores of Regard; the error rate is computed in a second way, which must agree."""
    measured = measure_alignment(links, gold.sure, gold.possible)
    ours, sure, possible = (
        {(number, *link) for number, sentence in enumerate(sentences) for link in sentence}
        for sentences in (links, gold.sure, gold.possible)
    )
    hits = len(ours & sure) + len(ours & (possible | sure))
    assert abs(measured.aer - 100 * (1 - hits / (len(ours) + len(sure)))) < 1e-9
    return {"aer": measured.aer, "precision": measured.precision, "recall": measured.recall}


def calibration_error(aligned: Sequence[Aligned], gold: Gold) -> float:
    """The mean distance of confidence and share of sure links, over ten bins of cells from 0.05 on.

    Cells that are possible and not sure are left out.
    """
    confidences, hits = [], []
    for pair, sure, possible in zip(aligned, gold.sure, gold.possible, strict=True):
        for target, source in (pair.weights >= 0.05).nonzero().tolist():
            if (source, target) in sure or (source, target) not in possible:
                confidences.append(float(pair.weights[target, source]))
                hits.append((source, target) in sure)
    bins = np.minimum((np.array(confidences) * 10).astype(int), 9)
    gaps = np.bincount(bins, np.array(confidences) - hits, minlength=10)
    return float(np.abs(gaps).sum() / len(bins))


def ours(pairs: Pairs, gold: Gold, seeds: int) -> dict[str, Any]:
    """Means over seeds, and the error rate of each; the gold is that of the first pairs."""
    runs, errors, seconds = [], [], []
    for seed in range(seeds):
        begin = time.process_time()
        aligned = list(adapt(pairs, seed=seed).aligned())[: len(gold)]
        seconds.append(time.process_time() - begin)
        runs.append(scores([pair.links for pair in aligned], gold))
        errors.append(calibration_error(aligned, gold))
    means = {name: mean(run[name] for run in runs) for name in runs[0]}
    return means | {
        "aer_by_seed": [run["aer"] for run in runs],
        "calibration_error": mean(errors),
        "processor_seconds": mean(seconds),
    }


def row(gold: Gold, others: Pairs, program: str | None, seeds: int) -> dict[str, Any]:
    pairs = [*(gold.words or []), *others]
    answer: dict[str, Any] = {"regard": ours(pairs, gold, seeds), "eflomal": "not installed here"}
    if program:
        answer["eflomal"] = scores(align(program, pairs)[: len(gold)], gold)
    return answer


def alone(data: Path, options: argparse.Namespace) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for name, (file, others) in SETS.items():
        gold = read_gold(data / file)
        more = [pair for other in others for pair in read_gold(data / other).words or []]
        if others:
            more += [
                (target, source)
                for other in ALIBI
                for source, target in read_gold(data / other).words or []
            ]
        table[name] = {
            "sentences": len(gold),
            "alone": row(gold, [], options.eflomal, options.seeds),
        }
        if more:
            table[name]["together"] = row(gold, more, options.eflomal, options.seeds)
        print(name, table[name], flush=True)
    for name, files in HELD_OUT.items() if options.held_out else ():
        gold = joined([read_gold(data / file) for file in files])
        table[name] = {
            "sentences": len(gold),
            "alone": row(gold, [], options.eflomal, options.seeds),
        }
        print(name, table[name], flush=True)
    return table


def with_corpora(data: Path, program: str) -> dict[str, Any]:
    """The diagonal, and eflomal with the training pairs of our translators behind the gold's sentences."""
    table: dict[str, Any] = {}
    for name, corpus in CORPORA.items():
        gold = read_gold(data / SETS[name][0])
        asked = gold.words or []
        pairs = read_pairs(Tsv(data / corpus)).pairs
        known = [(pair.source.split(), pair.target.split()) for pair in pairs]
        links = align(program, [*known, *asked])[-len(asked) :]
        diagonal = [diagonal_links(len(source), len(target)) for source, target in asked]
        table[name] = {
            "sentences": len(gold),
            "diagonal": scores(diagonal, gold),
            "eflomal": scores(links, gold),
        }
        print(name, table[name], flush=True)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--eflomal", metavar="PROGRAM")
    parser.add_argument("--corpora", action="store_true")
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    data = Path(os.environ["REGARD_DATA"])
    if options.corpora:
        results = {"table": with_corpora(data, options.eflomal)}
    else:
        results = {"table": alone(data, options), "published": PUBLISHED}
    if options.out:
        write(options.out, results)


if __name__ == "__main__":
    main()
