"""Pairs that are no translations, found by `regard data check --scores`: its precision on shuffled pairs.

python benchmarks/quality/mismatches.py [--out benchmarks/results/mismatches.json]

Of random pairs of a corpus, one in twenty gets the translation of another. Pairs are sorted by their score, the lowest
first. The folder REGARD_DATA names holds the corpora.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from _measure import write

from regard.translation.linking.learning import learn
from regard.translation.linking.support import DOUBTFUL, support
from regard.translation.linking.words import words_of
from regard.translation.text.corpora import Tsv

CORPORA = {
    "Tatoeba English-Spanish": ("tatoeba-spa-eng/train.tsv", 3000),
    "Tatoeba English-French": ("tatoeba-fra-eng/train.tsv", 1000),
}


def measured(path: Path, count: int) -> dict[str, float]:
    random = np.random.default_rng(0)
    rows = [(words_of(source), words_of(target)) for source, target in Tsv(path).rows()]
    full = [pair for pair in rows if all(pair)]
    pairs = [full[number] for number in random.permutation(len(full))[:count]]
    shuffled = random.permutation(count)[: count // 20]
    targets = [pairs[number][1] for number in np.roll(shuffled, 1)]
    for number, target in zip(shuffled, targets, strict=True):
        pairs[number] = pairs[number][0], target
    scores = support(pairs, learn(pairs)[0])
    wrong = np.isin(np.arange(count), shuffled)
    order = np.argsort(scores, kind="stable")
    precision = np.cumsum(wrong[order]) / np.arange(1, count + 1)
    doubtful = scores < DOUBTFUL
    return {
        "pairs": count,
        "shuffled": len(shuffled),
        "average_precision": float(precision[wrong[order]].mean()),
        "precision_of_the_lowest_half_as_many": float(precision[len(shuffled) // 2 - 1]),
        "doubtful": int(doubtful.sum()),
        "precision_of_the_doubtful": float(wrong[doubtful].mean()),
        "recall_of_the_doubtful": float(doubtful[wrong].mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    results = {}
    for name, (file, count) in CORPORA.items():
        results[name] = measured(Path(os.environ["REGARD_DATA"]) / file, count)
        print(name, results[name], flush=True)
        if options.out:
            write(options.out, {"table": results})


if __name__ == "__main__":
    main()
