"""From which confidence on a model's translations are to be doubted."""

from collections.abc import Sequence

from regard.translation.doubts import Doubts, confidence_limit
from regard.translation.evaluation.scores import metrics
from regard.translation.results import Translation
from regard.translation.text.corpora import Pair
from regard.translation.translator import Translator


def calibrate(translator: Translator, doubts: Doubts, pairs: Sequence[Pair]) -> Doubts:
    """The doubts with a limit of confidence for this model's own search, from validation pairs."""
    translations = translator.translate([pair.source for pair in pairs])
    limit = confidence_limit(list(map(confidence, translations)), chrf(translations, pairs))
    return doubts.model_copy(update={"confidence": limit})


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
