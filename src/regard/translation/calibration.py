"""From which confidence on a model's translations are to be doubted, and how good they probably are."""

from collections.abc import Sequence

import numpy as np

from regard.translation.doubts import Doubts, confidence_limit
from regard.translation.evaluation.scores import metrics
from regard.translation.quality import FEWEST, GOOD, Quality, held_out
from regard.translation.reading.features import features
from regard.translation.results import Translation
from regard.translation.text.corpora import Pair
from regard.translation.translator import Translator

# Of the validation lines, the share that may be doubted for their quality, and of these the share that must be worse
# than the median line: with the other reasons for doubt, and on other text, it is somewhat less.
_DOUBTED, _WORSE = 0.2, 0.87


def calibrate(translator: Translator, doubts: Doubts, pairs: Sequence[Pair]) -> Doubts:
    """The doubts with a limit of confidence and the quality for this model's own search, from validation pairs."""
    translations = translator.translate([pair.source for pair in pairs])
    scores = chrf(translations, pairs)
    limit = confidence_limit(list(map(confidence, translations)), scores)
    return doubts.model_copy(
        update={"confidence": limit, "quality": quality_of(translations, scores)}
    )


def quality_of(translations: Sequence[Translation], scores: Sequence[float]) -> Quality | None:
    """What tells good translations, by their chrF; None where there are too few good or bad ones.

    The limit is that of probabilities that each line has by regressions that have not seen it.
    """
    single = [
        row
        for row, translation in enumerate(translations)
        if translation.target_ids and not translation.sentences
    ]
    rows = np.array([features(translations[row]) for row in single])
    single_scores = np.array([scores[row] for row in single])
    good = single_scores >= GOOD
    if min(good.sum(), (~good).sum()) < FEWEST:
        return None
    probabilities = held_out(rows, good).tolist()
    limit = confidence_limit(probabilities, single_scores.tolist(), _DOUBTED, _WORSE)
    return Quality.fit(rows, good).model_copy(update={"limit": limit})


def confidence(translation: Translation) -> float:
    """The mean log-probability of the pieces of its least probable sentence, ends included."""
    sentences = translation.sentences or [translation]
    return min(
        sentence.log_probability / max(1, len(sentence.target_pieces)) for sentence in sentences
    )


def chrf(translations: Sequence[Translation], pairs: Sequence[Pair]) -> list[float]:
    """chrF of each translation (Popović 2015)."""
    (metric,) = metrics(["chrf"]).values()
    rows = zip(translations, pairs, strict=True)
    return [
        metric.sentence_score(translation.text, [pair.target]).score for translation, pair in rows
    ]
