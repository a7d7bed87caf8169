"""How many of the translations that are doubted are really worse.

    REGARD_DATA=FOLDER python benchmarks/quality/doubts.py

Tatoeba's 2,000 Spanish validation lines are halved at random. The limits are learnt from one half (and the training
text), and the translations of the other half are doubted by them. A translation is really worse when its chrF is below
the median of all translations of that half. The other corpora show how often a language is taken for another.
"""

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
DATA = Path(os.environ["REGARD_DATA"])


def judged(name: str, train: Sequence[Pair], valid: Sequence[Pair]) -> dict[str, Any]:
    """The doubts of one half of the validation text by the limits of the other."""
    found = Translator.open(name).translate([pair.source for pair in valid])
    scores = np.array(chrf(found, valid))
    order = np.random.default_rng(1).permutation(len(valid))
    learnt, other = np.split(order, 2)
    limits = Doubts.learn(train, [valid[i] for i in learnt])
    limit = confidence_limit([confidence(found[i]) for i in learnt], scores[learnt].tolist())
    limits = limits.model_copy(update={"confidence": limit})
    reasons = [doubted(found[i], limits).doubts for i in other]
    marked = np.array([bool(each) for each in reasons])
    own, median = scores[other], float(np.median(scores[other]))
    by_reason = Counter(reason for each in reasons for reason in each)
    worse = {
        reason: float((own[[reason in each for each in reasons]] < median).mean())
        for reason in by_reason
    }
    return {
        "lines": len(other),
        "limit_of_confidence": limit,
        "marked": int(marked.sum()),
        "marked_below_the_median": float((own[marked] < median).mean()),
        "marked_below_the_median_of_the_unmarked": float(
            (own[marked] < np.median(own[~marked])).mean()
        ),
        "mean_chrf": {"marked": own[marked].mean(), "unmarked": own[~marked].mean()},
        "by_reason": {
            name: {"lines": n, "below_the_median": worse[name]} for name, n in by_reason.items()
        },
    }


def main() -> None:
    folder = DATA / "tatoeba-spa-eng"
    train, valid = (read_aligned(Tsv(folder / f"{part}.tsv", 1, 0)) for part in ("train", "valid"))
    made: dict[str, Any] = {}
    for name in ("es-en", "es-en-recurrent"):
        made[name] = judged(name, train, valid)
        print(name, made[name], flush=True)
    language = Doubts.learn(train, valid).language
    assert language is not None
    french = read_aligned(Tsv(DATA / "tatoeba-fra-eng" / "valid.tsv", 1, 0))
    others = {
        "Spanish, Tatoeba's validation text": [pair.source for pair in valid],
        "the same in capitals": [pair.source.upper() for pair in valid],
        "Spanish, FLORES": list(read_lines(DATA / "flores-es-en" / "flores-dev.es")),
        "English, Tatoeba": [pair.target for pair in valid],
        "French, Tatoeba": [pair.source for pair in french],
        "German, Multi30k": list(read_lines(DATA / "multi30k-task1" / "val.de.gz")),
    }
    made["other_language"] = {
        name: float(np.mean([any(language.reasons(text)) for text in texts]))
        for name, texts in others.items()
    }
    print(made["other_language"])
    write(RESULTS, made)


if __name__ == "__main__":
    main()
