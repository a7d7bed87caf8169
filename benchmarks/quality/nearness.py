"""Whether a test file is kinder than other sentences: by length, by the nearest training sentence, by chance.

    REGARD_DATA=FOLDER python benchmarks/quality/nearness.py [MODEL]

The validation sentences of Tatoeba are translated; of the test file only the lengths and the nearest training sentences
(`test.nearest.tsv`: the largest share of words in common) are read. BLEU of the validation sentences in groups; its
standard deviation over resamples of as many sentences; and its mean over draws of validation sentences that have the
lengths and the nearest targets of the test file.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from _measure import write
from sacrebleu.metrics.bleu import BLEU

from regard.translation.training.data import read_split
from regard.translation.translator import Translator

DATA = Path(os.environ["REGARD_DATA"])
CORPORA = {"es": "tatoeba-spa-eng", "fr": "tatoeba-fra-eng"}
LENGTHS, SOURCES, TARGETS = (5, 6, 8, 11), (0.4, 0.5, 0.6, 0.75), (0.34, 0.45, 0.55, 0.7)
RESAMPLES, DRAWS = 100, 60


class Scores:
    """BLEU of any of some sentences."""

    def __init__(self, texts: Sequence[str], references: Sequence[str]) -> None:
        self.texts, self.references = np.array(texts), np.array(references)

    def of(self, rows: NDArray[Any]) -> float:
        texts, references = self.texts[rows].tolist(), self.references[rows].tolist()
        return float(BLEU().corpus_score(texts, [references]).score)


def groups(values: NDArray[Any], edges: Sequence[float], scores: Scores) -> dict[str, Any]:
    """BLEU and the number of the sentences between two edges."""
    places = np.digitize(values, edges)
    names = [f"below {edges[0]}", *(f"from {edge}" for edge in edges)]
    answer = {}
    for place, name in enumerate(names):
        rows = np.flatnonzero(places == place)
        answer[name] = {"bleu": round(scores.of(rows), 1), "sentences": len(rows)}
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", nargs="?", default="en-es")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    translator = Translator.open(options.model)
    configuration = translator.run.configuration
    languages = configuration.data.source_language, configuration.data.target_language
    folder = DATA / CORPORA[next(code for code in languages if code != "en")]
    splits = {
        name: read_split(configuration.data, name, DATA, configuration.seed).pairs
        for name in ("valid", "test")
    }
    columns = (0, 1) if languages[0] == "en" else (1, 0)  # the first column is English
    nearest = {
        name: np.loadtxt(folder / f"{name}.nearest.tsv", skiprows=1)[:, columns] for name in splits
    }
    lengths = {
        name: np.array([len(pair.source.split()) for pair in pairs])
        for name, pairs in splits.items()
    }
    valid = splits["valid"]
    translations = translator.translate([pair.source for pair in valid])
    scores = Scores([each.text for each in translations], [pair.target for pair in valid])
    sources = Counter(pair.source for pair in valid)
    repeated = np.flatnonzero([sources[pair.source] > 1 for pair in valid])
    random = np.random.default_rng(34)
    resampled = [scores.of(random.integers(0, len(valid), len(valid))) for _ in range(RESAMPLES)]
    cells = {
        name: list(
            zip(
                np.digitize(lengths[name], LENGTHS).tolist(),
                np.digitize(nearest[name][:, 1], TARGETS).tolist(),
                strict=True,
            )
        )
        for name in splits
    }
    rows_of = {
        cell: np.flatnonzero([at == cell for at in cells["valid"]]) for cell in cells["test"]
    }
    sample = [
        scores.of(
            np.array([random.choice(rows_of[at]) for at in cells["test"] if len(rows_of[at])])
        )
        for _ in range(DRAWS)
    ]
    results = {
        "model": options.model,
        "bleu": round(scores.of(np.arange(len(valid))), 2),
        "chance": round(float(np.std(resampled)), 2),
        "words of the source": groups(lengths["valid"], LENGTHS, scores),
        "nearest training source": groups(nearest["valid"][:, 0], SOURCES, scores),
        "nearest training target": groups(nearest["valid"][:, 1], TARGETS, scores),
        "several references": {
            "bleu": round(scores.of(repeated), 1),
            "sentences": len(repeated),
        },
        "drawn as the test file": round(float(np.mean(sample)), 2),
        "targets with 0.6 or more in common": {
            name: round(100 * float((values[:, 1] >= 0.6).mean()), 1)
            for name, values in nearest.items()
        },
        "mean words": {name: round(float(values.mean()), 2) for name, values in lengths.items()},
    }
    for name, value in results.items():
        print(f"{name}: {value}")
    if options.out:
        write(options.out, results)


if __name__ == "__main__":
    main()
