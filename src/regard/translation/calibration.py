"""From which confidence on a model's translations are to be doubted, and how good they probably are."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import NDArray

from regard.translation.doubts import FEWEST_LINES, Doubts, Quality, features
from regard.translation.evaluation.scores import metrics
from regard.translation.results import Translation
from regard.translation.text.corpora import Pair
from regard.translation.translator import Translator

# Of the validation lines, the share that may be doubted for their quality, and of these the share that must be worse
# than the median line: with the other reasons for doubt, and on other text, it is somewhat less.
_DOUBTED, _WORSE = 0.2, 0.87
# The chrF from which a translation counts as good; the fewest good and bad ones that a regression is learnt from.
GOOD, FEWEST = 25.0, 20
_FOLDS, _ROUNDS, _RIDGE = 10, 20, 3.0


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
    return fit(rows, good).model_copy(update={"limit": limit})


def fit(rows: Float[np.ndarray, "lines features"], good: Bool[np.ndarray, " lines"]) -> Quality:
    """The regression with a ridge, by Newton's method."""
    means = np.nanmean(rows, 0)
    scales = np.nanstd(rows, 0) + 1e-6
    inputs = np.nan_to_num((rows - means) / scales)
    inputs = np.column_stack([inputs, np.ones(len(inputs))])
    ridge = _RIDGE * np.diag([1.0] * len(means) + [0.0])
    weights = np.zeros(inputs.shape[1])
    for _ in range(_ROUNDS):
        probabilities = 1 / (1 + np.exp(-inputs @ weights))
        slopes = probabilities * (1 - probabilities) + 1e-6
        gradient = inputs.T @ (probabilities - good) + ridge @ weights
        weights -= np.linalg.solve(inputs.T @ (inputs * slopes[:, None]) + ridge, gradient)
    numbers = (values.round(6).tolist() for values in (means, scales, weights[:-1]))
    return Quality(
        **dict(zip(("means", "scales", "weights"), numbers, strict=True)),
        bias=round(float(weights[-1]), 6),
    )


def held_out(
    rows: Float[np.ndarray, "lines features"], good: Bool[np.ndarray, " lines"]
) -> NDArray[np.float64]:
    """The probability of each line by a regression that has not seen it: in turn, each tenth is left out."""
    answer = np.empty(len(rows))
    folds = np.random.default_rng(1).permutation(len(rows)) % _FOLDS
    for fold in range(_FOLDS):
        out = folds == fold
        answer[out] = fit(rows[~out], good[~out]).probabilities(rows[out])
    return answer


def confidence_limit(
    confidences: Sequence[float], scores: Sequence[float], share: float = 0.1, worse: float = 0.85
) -> float | None:
    """The confidence at and below which translations are to be doubted; None where there are too few to tell.

    Of the lines at or below it, at most the `share` of all, the share `worse` or more have a score below the
    median of all lines. It is the largest such limit.
    """
    if len(scores) < FEWEST_LINES:
        return None
    order = np.argsort(confidences, kind="stable")[: int(share * len(scores))]
    is_worse = np.array(scores)[order] < np.median(scores)
    shares = is_worse.cumsum() / np.arange(1, len(order) + 1)
    enough = np.flatnonzero(shares >= worse)
    return round(float(confidences[order[enough[-1]]]), 4) if len(enough) else None


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
