"""Which language a text may be in: the costs of sequences of three letters, as in text that is known."""

import math
import re
from collections import Counter
from collections.abc import Iterable
from functools import cached_property
from typing import Self

from pydantic import BaseModel, ConfigDict

# Trigrams that are kept: the 5,000 most frequent ones have 98% of those of Tatoeba's Spanish.
_KEPT = 5000
_OTHER = re.compile(r"[\W\d_]+")


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
        for trigram, count in sorted(counts.most_common(_KEPT), key=lambda one: (-one[1], one[0])):
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
        known, found = self._cost, _trigrams(word)
        return sum(known.get(trigram, self.unseen) for trigram in found) / len(found)


def words(text: str) -> list[str]:
    """The words of a text in small letters."""
    return _OTHER.sub(" ", text.lower()).split()


def _trigrams(word: str) -> list[str]:
    whole = f" {word} "
    return [whole[i : i + 3] for i in range(len(whole) - 2)]
