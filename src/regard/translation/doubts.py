"""Reasons to doubt the translation of a sentence, by what a model's training and validation text were like.

`doubts.json` in a run folder keeps it. Models without that file report only what needs no knowledge of the text.
"""

import math
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, TypeAdapter

from regard.translation import checksums
from regard.translation.runs import Run
from regard.translation.runs.layout import DOUBTS
from regard.translation.text.corpora import Pair
from regard.translation.text.normalisation import normalise
from regard.translation.text.trigrams import Trigrams, words

# At most so many pairs are learnt from. With fewer than the smaller numbers, nothing is learnt.
_LEARNT, _FEWEST_PAIRS, _FEWEST_LINES = 200_000, 1000, 100
# Of the validation sources, the share that may count as another language; of the training pairs, the share that may
# count as out of proportion.
_FOREIGN, _ODD = 0.003, 0.001
# A word counts once for its language; from so many words on, more make it no surer.
_SURE = 6
# Letters that a text must have to be compared with the target language.
_LETTERS = 12
# Of the lines below the limit of confidence, at most this share of all, so many must be worse than the median line.
_MOST, _WORSE = 0.1, 0.85
_LARGEST_FILE = 2**20


class Language(BaseModel):
    """Statistics of the languages of the training text.

    Attributes:
        source, target: the trigrams of both languages.
        usual: the mean over lines of the cost of the median word, in bits.
        limit: the largest (cost of the median word - usual) x sqrt(words) of the source language.
        margin: the largest cost of a source beyond its cost in the target language.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    source: Trigrams
    target: Trigrams
    usual: float
    limit: float
    margin: float

    @classmethod
    def learn(cls, train: Sequence[Pair], valid: Sequence[str]) -> Self:
        source = Trigrams.learn(pair.source for pair in train)
        target = Trigrams.learn(pair.target for pair in train)
        texts = [text for text in map(words, valid) if text]
        usual = float(np.mean([_median(source, text) for text in texts]))
        found = cls(source=source, target=target, usual=usual, limit=0, margin=0)
        limit = np.quantile([found._strangeness(text) for text in texts], 1 - _FOREIGN)
        margin = np.quantile([found._margin(text) for text in texts], 1 - _FOREIGN)
        # Bits are rounded so that the file does not depend on the last bits of a sum.
        rounded = {"limit": round(float(limit), 4), "margin": round(max(0.0, float(margin)), 4)}
        return found.model_copy(update={**rounded, "usual": round(usual, 4)})

    def reasons(self, text: str) -> Iterator[str]:
        """ "unknown script" or "other language"."""
        letters = [letter for letter in text.lower() if letter.isalpha()]
        if letters:
            strange = sum(_script(letter) not in self._scripts for letter in set(letters))
            if 2 * strange > len(set(letters)):
                yield "unknown script"
                return
        found = words(text)
        if found and (
            self._strangeness(found) > self.limit
            or (len(letters) >= _LETTERS and self._margin(found) > self.margin)
        ):
            yield "other language"

    def _strangeness(self, text: list[str]) -> float:
        return (_median(self.source, text) - self.usual) * math.sqrt(min(len(text), _SURE))

    def _margin(self, text: list[str]) -> float:
        letters = sum(map(len, text))
        return (
            sum((self.source.cost(word) - self.target.cost(word)) * len(word) for word in text)
            / letters
        )

    @cached_property
    def _scripts(self) -> frozenset[str]:
        return frozenset(map(_script, self.source.letters))


class Doubts(BaseModel):
    """Statistics of a model's training text; None where there was too little text.

    Attributes:
        version: of the file.
        language: of the sources.
        growth: letters of a target for each of its source.
        lengths: the smallest and the largest (target - growth x source) / sqrt(source), in characters, of the
            training pairs: lengths of translations vary with the square root of their sources' (Gale and Church
            1993, "A program for aligning sentences in bilingual corpora").
        confidence: the mean log-probability of a translation's pieces at and below which translations of the
            validation text were worse than the median one (see `confidence_limit`).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    version: int = 1
    language: Language | None = None
    growth: float = 1.0
    lengths: tuple[float, float] | None = None
    confidence: float | None = None

    @classmethod
    def open(cls, run: Run) -> Self | None:
        """Those of a run; None where it has none. Raises `CorruptedError`."""
        path = run.folder / DOUBTS
        if run.checksum(DOUBTS) is None and not path.exists():
            return None
        return checksums.parsed(
            TypeAdapter(cls), run.content(DOUBTS, _LARGEST_FILE), path, "doubts of a model"
        )

    @classmethod
    def learn(cls, train: Sequence[Pair], valid: Sequence[Pair]) -> Self:
        """Everything but the confidence, which needs a trained model."""
        taken = train[:: -(-len(train) // _LEARNT) or 1]
        taken = [pair for pair in taken if pair.source and pair.target]
        if len(taken) < _FEWEST_PAIRS or len(valid) < _FEWEST_LINES:
            return cls()
        sizes = np.array([[len(pair.source), len(pair.target)] for pair in taken], dtype=float)
        growth = round(float(sizes[:, 1].sum() / sizes[:, 0].sum()), 4)
        odd = _odd(sizes[:, 0], sizes[:, 1], growth)
        low, high = np.quantile(odd, [_ODD / 2, 1 - _ODD / 2]).round(4).tolist()
        language = Language.learn(taken, [pair.source for pair in valid])
        return cls(language=language, growth=growth, lengths=(low, high))

    def keep(self, run: Run) -> None:
        """Write the file. Raises `OSError`."""
        run.keep(DOUBTS, (self.model_dump_json(exclude_none=True) + "\n").encode())

    def reasons(self, source: str, text: str, confidence: float) -> Iterator[str]:
        """Why to doubt a translation: "unknown script", "other language", "odd length", "low confidence".

        Args:
            source: one sentence.
            text: its translation.
            confidence: the mean log-probability of its pieces, the end among them.
        """
        source = normalise(source)
        if self.language is not None:
            yield from self.language.reasons(source)
        if self.lengths is not None:
            low, high = self.lengths
            odd = _odd(np.array([len(source)]), np.array([len(text)]), self.growth)
            if not low <= float(odd[0]) <= high:
                yield "odd length"
        if self.confidence is not None and confidence <= self.confidence:
            yield "low confidence"


def wordless(source: str) -> bool:
    """Whether a text that is not empty has neither letters nor digits."""
    text = normalise(source)
    return text != "" and not any(character.isalnum() for character in text)


def confidence_limit(confidences: Sequence[float], scores: Sequence[float]) -> float | None:
    """The confidence at and below which translations are to be doubted; None where there are too few to tell.

    Of the lines at or below it, at most a tenth of all, 85% or more have a score below the median of all lines.
    It is the largest such limit.
    """
    if len(scores) < _FEWEST_LINES:
        return None
    order = np.argsort(confidences, kind="stable")[: int(_MOST * len(scores))]
    worse = np.array(scores)[order] < np.median(scores)
    shares = worse.cumsum() / np.arange(1, len(order) + 1)
    enough = np.flatnonzero(shares >= _WORSE)
    return round(float(confidences[order[enough[-1]]]), 4) if len(enough) else None


def _median(trigrams: Trigrams, text: list[str]) -> float:
    """The cost of the median word, each word counted as often as it has letters: names are few."""
    costs = sorted((trigrams.cost(word), len(word)) for word in text)
    read = np.cumsum([size for _, size in costs])
    return costs[int(np.searchsorted(read, read[-1] / 2))][0]


def _odd(
    source: NDArray[np.floating], target: NDArray[np.floating], growth: float
) -> NDArray[np.floating]:
    return np.asarray((target - growth * source) / np.sqrt(np.maximum(source, 1)))


def _script(letter: str) -> str:
    return unicodedata.name(letter, "").partition(" ")[0]
