"""Which language a text may be in: the costs of its sequences of three letters, as learnt from other text."""

import math
import unicodedata
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, repeat
from typing import Self

import numpy as np
from pydantic import BaseModel, ConfigDict

from regard.translation.text.corpora import Pair
from regard.translation.text.letters import WORD

# The trigrams of a language: the 5,000 most frequent ones have 98% of those of Tatoeba's Spanish.
_MOST_FREQUENT = 5000
# Of the validation sources, the share that may count as another language.
_FOREIGN = 0.003
# A word counts once for its language; from so many words on, more make it no surer.
_SURE = 6
# Letters that a text must have to be compared with the target language.
_LETTERS = 12


class Trigrams(BaseModel):
    """The most frequent trigrams of a language by their cost in bits, -log2 of their share.

    Letters are small; other characters separate words. After Cavnar and Trenkle 1994 ("N-gram-based text
    categorization"), with probabilities in place of ranks.

    Attributes:
        costs: by cost, the trigrams of that cost, one behind the other.
        unseen: the cost of all others.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    costs: dict[str, str]
    unseen: int

    @classmethod
    def learn(cls, lines: Iterable[str]) -> Self:
        """The trigrams of lines of text.

        >>> Trigrams.learn(["la la la"]).costs
        {'1': ' lala '}
        """
        counts = Counter(
            trigram for line in lines for word in words(line) for trigram in _trigrams(word)
        )
        total = counts.total()
        costs: dict[str, str] = {}
        unseen = 0
        for trigram, count in sorted(
            counts.most_common(_MOST_FREQUENT), key=lambda pair: (-pair[1], pair[0])
        ):
            unseen = round(math.log2(total / count))
            costs[str(unseen)] = costs.get(str(unseen), "") + trigram
        return cls(costs=costs, unseen=unseen + 1)

    @cached_property
    def _cost(self) -> dict[str, int]:
        return {
            text[i : i + 3]: int(cost)
            for cost, text in self.costs.items()
            for i in range(0, len(text), 3)
        }

    @cached_property
    def letters(self) -> frozenset[str]:
        """The letters that occur in the trigrams."""
        return frozenset("".join(self.costs.values())) - {" "}

    def cost(self, word: str) -> float:
        """The mean cost of the trigrams of a word, which begins and ends with a space."""
        trigrams = _trigrams(word)
        return sum(map(self._cost.get, trigrams, repeat(self.unseen))) / len(trigrams)


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
        costs = [list(map(source.cost, text)) for text in texts]
        usual = float(np.mean(list(map(_median, texts, costs))))
        language = cls(source=source, target=target, usual=usual, limit=0, margin=0)
        limit = np.quantile(list(map(language._strangeness, texts, costs)), 1 - _FOREIGN)
        margin = np.quantile(list(map(language._margin, texts, costs)), 1 - _FOREIGN)
        # Bits are rounded so that the file does not depend on the last bits of a sum.
        rounded = {"limit": round(float(limit), 4), "margin": round(max(0.0, float(margin)), 4)}
        return language.model_copy(update={**rounded, "usual": round(usual, 4)})

    def reasons(self, text: str) -> Iterator[str]:
        """ "unknown script" or "other language"."""
        letters = list(filter(str.isalpha, text.lower()))
        different = set(letters)
        strange = sum(
            _script(letter) not in self._scripts for letter in different - self.source.letters
        )
        if 2 * strange > len(different):
            yield "unknown script"
            return
        spelt = words(text)
        costs = list(map(self.source.cost, spelt))
        if spelt and (
            self._strangeness(spelt, costs) > self.limit
            or (len(letters) >= _LETTERS and self._margin(spelt, costs) > self.margin)
        ):
            yield "other language"

    def _strangeness(self, text: list[str], costs: list[float]) -> float:
        return (_median(text, costs) - self.usual) * math.sqrt(min(len(text), _SURE))

    def _margin(self, text: list[str], costs: list[float]) -> float:
        words = zip(text, costs, strict=True)
        total = sum((cost - self.target.cost(word)) * len(word) for word, cost in words)
        return total / sum(map(len, text))

    @cached_property
    def _scripts(self) -> frozenset[str]:
        return frozenset(map(_script, self.source.letters))


def words(text: str) -> list[str]:
    """The words of a text in small letters."""
    return WORD.findall(text.lower())


def _trigrams(word: str) -> list[str]:
    spaced = f" {word} "
    return [spaced[i : i + 3] for i in range(len(spaced) - 2)]


def _median(text: list[str], costs: list[float]) -> float:
    """The cost of the median word, each word counted as often as it has letters: names are few."""
    ranked = sorted(zip(costs, map(len, text), strict=True))
    letters = list(accumulate(size for _, size in ranked))
    return ranked[bisect_left(letters, letters[-1] / 2)][0]


def _script(letter: str) -> str:
    return unicodedata.name(letter, "").partition(" ")[0]
