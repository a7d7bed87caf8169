"""From which confidence on a model's translations are to be doubted."""

from collections.abc import Sequence

from regard.translation.doubts import Doubts, confidence_limit
from regard.translation.evaluation.scores import metrics
from regard.translation.results import Translation
from regard.translation.text.corpora import Pair
from regard.translation.translator import Translator


def calibrate(translator: Translator, doubts: Doubts, pairs: Sequence[Pair]) -> Doubts:
    """The doubts with a limit of confidence for this model's own search, from validation pairs."""
    found = translator.translate([pair.source for pair in pairs])
    limit = confidence_limit(list(map(confidence, found)), chrf(found, pairs))
    return doubts.model_copy(update={"confidence": limit})


def confidence(one: Translation) -> float:
    """The mean log-probability of the pieces of its least probable sentence, ends included."""
    sentences = one.sentences or [one]
    return min(each.log_probability / max(1, len(each.target_pieces)) for each in sentences)


def chrf(found: Sequence[Translation], pairs: Sequence[Pair]) -> list[float]:
    """chrF of each translation (Popović 2015)."""
    (metric,) = metrics(["chrf"]).values()
    both = zip(found, pairs, strict=True)
    return [metric.sentence_score(one.text, [pair.target]).score for one, pair in both]
