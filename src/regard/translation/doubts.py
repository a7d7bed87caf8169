"""Reasons to doubt the translation of a sentence, and the probability that it is good.

`doubts.json` in a run folder keeps what a model's training and validation text were like. Models without that file
report only what needs no knowledge of the text.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, Self

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from pydantic import BaseModel

from regard.translation.results import Translation
from regard.translation.runs.layout import DOUBTS
from regard.translation.runs.statistics import Statistics
from regard.translation.text.corpora import Pair
from regard.translation.text.normalisation import normalise
from regard.translation.text.trigrams import Language

# At most so many pairs are read. With fewer than the smaller numbers, nothing is learnt.
_MOST_PAIRS, _FEWEST_PAIRS, FEWEST_LINES = 200_000, 1000, 100
# Of the training pairs, the share that may count as out of proportion.
_ODD = 0.001
_LETTERS = 3  # of the sequences by which hypotheses agree


class Quality(BaseModel, frozen=True, extra="forbid", strict=True):
    """The probability that a translation is good: a logistic regression over its `features`, which are standardised.

    No second model is needed: quality estimation "in a glass box" (Fomicheva et al. 2020, arXiv 2005.10608), with the
    agreement of the hypotheses as of minimum-risk decoding.

    Attributes:
        means, scales: of the features in the validation text; a feature that a search does not tell is at its mean.
        bias: the log-odds where all features are at their means.
        limit: translations with a probability at or below it are to be doubted; None where it is not known.
    """

    means: list[float]
    scales: list[float]
    weights: list[float]
    bias: float
    limit: float | None = None

    def probabilities(self, rows: Float[np.ndarray, "lines features"]) -> NDArray[np.float64]:
        """The probability of each line that its translation is good (chrF of 25 or more against a reference)."""
        inputs = np.nan_to_num((rows - np.array(self.means)) / np.array(self.scales))
        return np.asarray(
            1 / (1 + np.exp(-np.clip(inputs @ np.array(self.weights) + self.bias, -30, 30)))
        )

    def of(self, row: Sequence[float]) -> float:
        """That of one line."""
        return round(float(self.probabilities(np.array([row]))[0]), 4)


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
        if len(pairs) < _FEWEST_PAIRS or len(valid) < FEWEST_LINES:
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
            if not low <= _excess(len(source), len(text), self.growth) <= high:
                yield "odd length"
        value, limit = confidence, self.confidence
        if quality is not None and self.quality is not None and self.quality.limit is not None:
            value, limit = quality, self.quality.limit
        if limit is not None and value <= limit:
            yield "low confidence"


def doubted(translation: Translation, doubts: Doubts | None, prefix: str = "") -> Translation:
    """The translation of a sentence with the reasons to doubt it; words of a prefix may be improbable."""
    statistical, quality = list[str](), None
    if doubts is not None and translation.target_pieces:
        pieces = len(translation.target_pieces)
        confidence = 0.0 if prefix else translation.log_probability / pieces
        if doubts.quality is not None and not prefix:
            quality = doubts.quality.of(features(translation))
        statistical += doubts.reasons(translation.source, translation.text, confidence, quality)
    signs = {
        "no words": wordless(translation.source),
        "cut": translation.cut,
        "unknown": translation.unknown,
        "unseen": translation.unseen,
        "invented": translation.invented,
        "repeats": translation.repeats,
        "unfinished": translation.unfinished,
    }
    reasons = [reason for reason, sign in signs.items() if sign]
    return replace(translation, quality=quality, doubts=reasons + statistical)


def features(translation: Translation) -> list[float]:
    """The numbers that tell a good translation of a sentence from others.

    In their order: the mean probability of its words, the mean log-probability of its pieces, the agreement of the
    hypotheses, the logarithm of the source's length in pieces, the pieces of a source word, and whether words of the
    source were read as others.
    """
    confidences = [word.confidence for word in translation.words]
    pieces = len(translation.source_ids)
    return [
        fmean(confidences) if confidences else math.nan,  # CTranslate2 does not tell them
        translation.log_probability / max(1, len(translation.target_pieces)),
        math.nan if translation.agreement is None else translation.agreement,
        math.log(pieces + 1),
        pieces / max(1, len(translation.source.split())),
        float(bool(translation.read_as)),
    ]


def agreement(text: str, hypotheses: Sequence[str]) -> float:
    """The share of sequences of three characters that a text has in common with others, on average; 1 without any.

    >>> agreement("a cat", ["a cat", "a hat"])
    0.5
    """
    trigrams = _trigrams(text)
    return fmean(_dice(trigrams, _trigrams(other)) for other in hypotheses) if hypotheses else 1.0


def wordless(source: str) -> bool:
    """Whether a text that is not empty has neither letters nor digits."""
    return not any(map(str.isalnum, source)) and normalise(source) != ""


def _excess(source: Any, target: Any, growth: float) -> Any:
    """How many characters a target has beyond the usual, over the square root of its source's; of numbers or arrays."""
    return (target - growth * source) / np.sqrt(np.maximum(source, 1))


def _trigrams(text: str) -> Counter[str]:
    text = text.lower()
    return Counter(text[start : start + _LETTERS] for start in range(len(text) - _LETTERS + 1))


def _dice(trigrams: Counter[str], other_trigrams: Counter[str]) -> float:
    size = trigrams.total() + other_trigrams.total()
    return 2 * (trigrams & other_trigrams).total() / size if size else 1.0
