"""Reasons to doubt the translation of a sentence, by what a model's training and validation text were like.

`doubts.json` in a run folder keeps it. Models without that file report only what needs no knowledge of the text.
"""

from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from regard.translation.quality import Quality
from regard.translation.runs.layout import DOUBTS
from regard.translation.runs.statistics import Statistics
from regard.translation.text.corpora import Pair
from regard.translation.text.normalisation import normalise
from regard.translation.text.trigrams import Language

# At most so many pairs are read. With fewer than the smaller numbers, nothing is learnt.
_MOST_PAIRS, _FEWEST_PAIRS, _FEWEST_LINES = 200_000, 1000, 100
# Of the training pairs, the share that may count as out of proportion.
_ODD = 0.001
# Of the lines below the limit of confidence, at most this share of all, so many must be worse than the median line.
_DOUBTED, _WORSE = 0.1, 0.85


class Doubts(Statistics, frozen=True):
    """Statistics of a model's training text; None where there was too little text.

    Attributes:
        language: of the sources.
        growth: letters of a target for each of its source.
        lengths: the smallest and the largest (target - growth x source) / sqrt(source), in characters, of the
            training pairs: lengths of translations vary with the square root of their sources' (Gale and Church
            1993, "A program for aligning sentences in bilingual corpora").
        confidence: the mean log-probability of a translation's pieces at and below which translations of the
            validation text were worse than the median one (see `confidence_limit`).
        quality: what tells good translations, with a limit of its own; where it is known, it replaces `confidence`.
    """

    NAME, LARGEST, DESCRIPTION = DOUBTS, 2**20, "doubts of a model"

    language: Language | None = None
    growth: float = 1.0
    lengths: tuple[float, float] | None = None
    confidence: float | None = None
    quality: Quality | None = None

    @classmethod
    def learn(cls, train: Sequence[Pair], valid: Sequence[Pair]) -> Self:
        """Everything but the confidence, which needs a trained model."""
        pairs = train[:: -(-len(train) // _MOST_PAIRS) or 1]
        pairs = [pair for pair in pairs if pair.source and pair.target]
        if len(pairs) < _FEWEST_PAIRS or len(valid) < _FEWEST_LINES:
            return cls()
        sizes = np.array([[len(pair.source), len(pair.target)] for pair in pairs], dtype=float)
        growth = round(float(sizes[:, 1].sum() / sizes[:, 0].sum()), 4)
        excess = _excess(sizes[:, 0], sizes[:, 1], growth)
        low, high = np.quantile(excess, [_ODD / 2, 1 - _ODD / 2]).round(4).tolist()
        language = Language.learn(pairs, [pair.source for pair in valid])
        return cls(language=language, growth=growth, lengths=(low, high))

    def reasons(
        self, source: str, text: str, confidence: float, quality: float | None = None
    ) -> Iterator[str]:
        """Why to doubt a translation: "unknown script", "other language", "odd length", "low confidence".

        Args:
            source: one sentence.
            text: its translation.
            confidence: the mean log-probability of its pieces, the end among them.
            quality: the probability that it is good.
        """
        source = normalise(source)
        if self.language is not None:
            yield from self.language.reasons(source)
        if self.lengths is not None:
            low, high = self.lengths
            excess = _excess(np.array([len(source)]), np.array([len(text)]), self.growth)
            if not low <= float(excess[0]) <= high:
                yield "odd length"
        value, limit = confidence, self.confidence
        if quality is not None and self.quality is not None and self.quality.limit is not None:
            value, limit = quality, self.quality.limit
        if limit is not None and value <= limit:
            yield "low confidence"


def wordless(source: str) -> bool:
    """Whether a text that is not empty has neither letters nor digits."""
    text = normalise(source)
    return text != "" and not any(character.isalnum() for character in text)


def confidence_limit(
    confidences: Sequence[float],
    scores: Sequence[float],
    most: float = _DOUBTED,
    worse: float = _WORSE,
) -> float | None:
    """The confidence at and below which translations are to be doubted; None where there are too few to tell.

    Of the lines at or below it, at most the share `most` of all, the share `worse` or more have a score below the
    median of all lines. It is the largest such limit.
    """
    if len(scores) < _FEWEST_LINES:
        return None
    order = np.argsort(confidences, kind="stable")[: int(most * len(scores))]
    is_worse = np.array(scores)[order] < np.median(scores)
    shares = is_worse.cumsum() / np.arange(1, len(order) + 1)
    enough = np.flatnonzero(shares >= worse)
    return round(float(confidences[order[enough[-1]]]), 4) if len(enough) else None


def _excess(
    source: NDArray[np.floating], target: NDArray[np.floating], growth: float
) -> NDArray[np.floating]:
    """How many characters a target has beyond the usual, over the square root of its source's."""
    return np.asarray((target - growth * source) / np.sqrt(np.maximum(source, 1)))
