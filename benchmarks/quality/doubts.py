"""How many of the translations that are doubted are really worse.

    REGARD_DATA=FOLDER python benchmarks/quality/doubts.py

Tatoeba's 2,000 Spanish validation lines are halved at random. The limits are learnt from one half (and the training
text), and the translations of the other half are doubted by them. A translation is really worse when its chrF is below
the median of all translations of that half. The other corpora show how often a language is taken for another.
"""

import argparse
import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from _measure import write

from regard.translation.calibration import chrf, confidence, confidence_limit
from regard.translation.doubts import Doubts, doubted
from regard.translation.text.corpora import Pair, Tsv, read_aligned, read_lines
from regard.translation.translator import Translator

RESULTS = Path(__file__).resolve().parents[1] / "results" / "doubts.json"
FORM = argparse.RawDescriptionHelpFormatter


def judge(name: str, train: Sequence[Pair], valid: Sequence[Pair]) -> dict[str, Any]:
    """The doubts of one half of the validation text by the limits of the other."""
    translations = Translator.open(name).translate([pair.source for pair in valid])
    scores = np.array(chrf(translations, valid))
    learning, testing = np.split(np.random.default_rng(1).permutation(len(valid)), 2)
    limits = Doubts.learn(train, [valid[line] for line in learning])
    confidences = [confidence(translations[line]) for line in learning]
    limit = confidence_limit(confidences, scores[learning].tolist())
    limits = limits.model_copy(update={"confidence": limit})
    reasons = [doubted(translations[line], limits).doubts for line in testing]
    marked = np.array([bool(each) for each in reasons])
    tested_scores, median = scores[testing], float(np.median(scores[testing]))
    by_reason = Counter(reason for each in reasons for reason in each)
    below = {
        reason: float((tested_scores[[reason in each for each in reasons]] < median).mean())
        for reason in by_reason
    }
    median_of_the_unmarked = np.median(tested_scores[~marked])
    return {
        "lines": len(testing),
        "limit_of_confidence": limit,
        "marked": int(marked.sum()),
        "marked_below_the_median": float((tested_scores[marked] < median).mean()),
        "marked_below_the_median_of_the_unmarked": float(
            (tested_scores[marked] < median_of_the_unmarked).mean()
        ),
        "mean_chrf": {
            "marked": tested_scores[marked].mean(),
            "unmarked": tested_scores[~marked].mean(),
        },
        "by_reason": {
            name: {"lines": n, "below_the_median": below[name]} for name, n in by_reason.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=FORM)
    parser.add_argument("--lines", type=int, help="of the validation text, for a quick try")
    lines = parser.parse_args().lines
    data = Path(os.environ["REGARD_DATA"])
    folder = data / "tatoeba-spa-eng"
    train, valid = (read_aligned(Tsv(folder / f"{name}.tsv", 1, 0)) for name in ("train", "valid"))
    valid = valid[:lines]
    results: dict[str, Any] = {}
    for name in ("es-en", "es-en-recurrent"):
        results[name] = judge(name, train, valid)
        print(name, results[name], flush=True)
    language = Doubts.learn(train, valid).language
    assert language is not None
    french = read_aligned(Tsv(data / "tatoeba-fra-eng" / "valid.tsv", 1, 0))
    samples = {
        "Spanish, Tatoeba's validation text": [pair.source for pair in valid],
        "the same in capitals": [pair.source.upper() for pair in valid],
        "Spanish, FLORES": list(read_lines(data / "flores-es-en" / "flores-dev.es")),
        "English, Tatoeba": [pair.target for pair in valid],
        "French, Tatoeba": [pair.source for pair in french],
        "German, Multi30k": list(read_lines(data / "multi30k-task1" / "val.de.gz")),
    }
    results["other_language"] = {
        name: float(np.mean([any(language.reasons(text)) for text in texts]))
        for name, texts in samples.items()
    }
    print(results["other_language"])
    if lines is None:
        write(RESULTS, results)


if __name__ == "__main__":
    main()
