"""How well a model tells its bad translations from its good ones, without a reference.

    REGARD_DATA=FOLDER python benchmarks/quality/estimates.py [MODEL ...]

The validation lines of each model are translated and divided at random into ten parts. Each part is judged by the
regression and the limits of the other nine parts, so a line never judges itself. A line is bad
where its chrF is below 25. The area under the curve (AUC) is the chance that a bad line has a smaller value than
another line. Precision is the share of the marked lines whose chrF is below the median of all lines. The test files are
not read.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from _measure import write

from regard.translation.calibration import GOOD, chrf, confidence, confidence_limit, quality_of
from regard.translation.doubts import doubted, features
from regard.translation.results import Translation
from regard.translation.training.data import read_split
from regard.translation.translator import Translator

RESULTS = Path(__file__).resolve().parents[1] / "results" / "estimates.json"
DATA = Path(os.environ["REGARD_DATA"])
MODELS = ("es-en", "en-es", "es-en-recurrent")
FOLDS, BINS = 10, 10
PRECISIONS = (0.95, 0.9, 0.87, 0.85, 0.8)
Numbers = NDArray[np.float64]


def auc(values: Numbers, bad: NDArray[np.bool_]) -> float:
    """The chance that a bad line has a smaller value than another line; half where they are equal."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (counts.cumsum() - (counts - 1) / 2)[places]
    good = ~bad
    return float((ranks[good].sum() - good.sum() * (good.sum() + 1) / 2) / (good.sum() * bad.sum()))


def curve(values: Numbers, scores: Numbers) -> dict[str, Any]:
    """For each precision the most lines that can be marked, the lowest values first, and the bad lines among them."""
    order, bad = np.argsort(values, kind="stable"), scores < GOOD
    precisions = (scores[order] < np.median(scores)).cumsum() / np.arange(1, len(order) + 1)
    answer = {}
    for precision in PRECISIONS:
        reached = np.flatnonzero(precisions >= precision)
        count = int(reached[-1]) + 1 if len(reached) else 0
        recall = 100 * float(bad[order[:count]].sum() / bad.sum())
        answer[str(precision)] = {"marked": count, "bad_lines_marked": round(recall, 1)}
    return answer


def marks(marked: NDArray[np.bool_], scores: Numbers) -> dict[str, Any]:
    bad = scores < GOOD
    return {
        "marked": int(marked.sum()),
        "bad_lines_marked": round(100 * float(marked[bad].mean()), 1),
        "below_the_median": round(100 * float((scores[marked] < np.median(scores)).mean()), 1),
    }


def calibration_error(values: Numbers, good: NDArray[np.bool_]) -> float:
    """The mean distance, over tenths of the lines, of the mean probability from the share of good lines."""
    groups = np.array_split(np.argsort(values, kind="stable"), BINS)
    return float(np.mean([abs(values[rows].mean() - good[rows].mean()) for rows in groups]))


def judged(name: str) -> dict[str, Any]:
    translator = Translator.open(name)
    configuration, doubts = translator.run.configuration, translator.doubts
    assert doubts is not None
    pairs = read_split(configuration.data, "valid", DATA, configuration.seed).pairs
    translations = [
        replace(translation, quality=None)
        for translation in translator.translate([pair.source for pair in pairs])
    ]
    scores = np.array(chrf(translations, pairs))
    # Lines of several sentences, and lines that are copied, are judged by other means.
    single = [
        row for row, line in enumerate(translations) if line.target_ids and not line.sentences
    ]
    translations, scores = [translations[row] for row in single], scores[single]
    values = np.empty(len(single))
    by_confidence, by_quality = np.zeros((2, len(single)), dtype=bool)
    folds = np.random.default_rng(34).permutation(len(single)) % FOLDS
    for fold in range(FOLDS):
        teaching, rows = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        texts = [translations[row] for row in teaching]
        quality = quality_of(texts, scores[teaching])
        assert quality is not None
        limit = confidence_limit(list(map(confidence, texts)), scores[teaching].tolist())
        for row in rows:
            values[row] = quality.of(features(translations[row]))
            older = doubts.model_copy(update={"confidence": limit, "quality": None})
            newer = doubts.model_copy(update={"quality": quality})
            by_confidence[row] = bool(doubted(translations[row], older).doubts)
            by_quality[row] = bool(doubted(translations[row], newer).doubts)
    bad = scores < GOOD
    return {
        "lines": len(single),
        "bad_lines": int(bad.sum()),
        "auc": {
            **{
                title: round(auc(column, bad), 3) for title, column in columns(translations).items()
            },
            "quality": round(auc(values, bad), 3),
        },
        "calibration_error": round(calibration_error(values, ~bad), 4),
        "recall_at_precision_by_quality_alone": curve(values, scores),
        "doubts_by_confidence": marks(by_confidence, scores),
        "doubts_by_quality": marks(by_quality, scores),
    }


def columns(translations: Sequence[Translation]) -> dict[str, Numbers]:
    """The values that may tell good translations from bad ones, each alone."""
    rows = np.array([features(translation) for translation in translations])
    names = ("mean probability of words", "mean log-probability", "agreement")
    answer = {"score": np.array([translation.score for translation in translations])}
    return answer | dict(zip(names, np.nan_to_num(rows[:, :3]).T, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    results = {}
    for name in options.models:
        results[name] = judged(name)
        print(name, results[name], flush=True)
    write(options.out, results)


if __name__ == "__main__":
    main()
