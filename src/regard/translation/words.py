"""The words of a training text: which are known, which are names, how accents and numbers are written.

`words.json` in a run folder keeps them.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import Self

from regard.translation.runs.layout import WORDS
from regard.translation.runs.statistics import Statistics
from regard.translation.text.corpora import Pair
from regard.translation.text.exchange import named
from regard.translation.text.letters import (
    WORD,
    Accents,
    as_inside,
    begins_sentence,
    has_capital,
    with_capitals_of,
)
from regard.translation.text.numbers import Marks, copies_numbers
from regard.translation.text.trigrams import Trigrams

# Names and words that are kept.
_NAMES, _WORDS = 8, 60_000
# Of the words with a capital inside the sources, so many must be names: German nouns have capitals, too.
_SHARE = 0.5
# Words that are corrected: shorter ones have too many neighbours; the neighbours of longer ones take long to make.
_SHORTEST, _LONGEST = 4, 24


class KnownWords(Statistics, frozen=True):
    """The words of the sources, by which names, numbers and typing errors are found.

    Attributes:
        words: those of the sources, the most frequent first, with spaces between them.
        names: the most frequent names that training pairs have on both sides. Empty where capitals do not mark names.
        ordinary, proper: trigrams of the words in small letters and of the names.
        marks: those of numbers.
        accents: where they belong.
        numbers: whether a source that is a number only is its own translation.
    """

    NAME, LARGEST, DESCRIPTION = WORDS, 8 * 2**20, "words of a model"

    words: str
    names: list[str]
    ordinary: Trigrams
    proper: Trigrams
    marks: Marks
    accents: Accents
    numbers: bool = True

    @classmethod
    def learn(cls, pairs: Sequence[Pair]) -> Self:
        """Those of training pairs; of several languages, without their accents and the marks of their numbers."""
        is_multilingual = len({pair.tags for pair in pairs}) > 1
        sources = [pair.source for pair in pairs]
        sentences = list(map(WORD.findall, sources))
        counts_inside = Counter(chain.from_iterable(words[1:] for words in sentences))
        beginnings = (as_inside(words[0], counts_inside) for words in sentences if words)
        counts = counts_inside + Counter(beginnings)
        capitals = {word: count for word, count in counts_inside.items() if has_capital(word)}
        names = Counter(chain.from_iterable(names for _, names in named(pairs)))
        if sum(capitals.get(name, 0) for name in names) <= _SHARE * sum(capitals.values()):
            names.clear()
        return cls(
            words=" ".join(word for word, _ in counts.most_common(_WORDS)),
            names=[name for name, _ in names.most_common(_NAMES)],
            ordinary=Trigrams.learn(word for word in sorted(counts) if word.islower()),
            proper=Trigrams.learn(sorted(names)),
            marks=Marks("", "") if is_multilingual else Marks.learn(pairs),
            accents=Accents() if is_multilingual else Accents.learn(sources),
            numbers=copies_numbers(pairs),
        )

    def merged(self, words: Self) -> Self:
        """These and the words of another text, from which the same model is trained on."""
        update = {
            "words": " ".join(dict.fromkeys([*self.rank, *words.rank])),
            "names": self.names or words.names,
            "numbers": self.numbers and words.numbers,
        }
        return self.model_copy(update=update)

    def has(self, word: str) -> bool:
        return word in self.rank

    def corrected(self, text: str) -> str:
        """The text with the most frequent known word of one other letter in the place of every unknown word.

        Words that may be names stay.
        """

        def corrected_word(match: re.Match[str]) -> str:
            word = match[0]
            small = word.lower()
            if not _SHORTEST <= len(word) <= _LONGEST or self.has(small) or self.may_be_name(match):
                return word
            neighbours = filter(self.has, _neighbours(small, self.letters))
            best = min(neighbours, key=self.rank.__getitem__, default=None)
            return word if best is None else with_capitals_of(word, best)

        return WORD.sub(corrected_word, text)

    def may_be_name(self, word: re.Match[str]) -> bool:
        """Whether a word of a sentence may be a name that no training source has."""
        text, small = word[0], word[0].lower()
        if text == small or self.has(text) or _is_joined(word):
            return False
        if not begins_sentence(word):
            return True
        if self.has(small) or not self.proper.letters.issuperset(small):
            return False
        return self.proper.cost(small) <= self.ordinary.cost(small)

    @cached_property
    def rank(self) -> dict[str, int]:
        """The place of each word by its frequency."""
        return {word: place for place, word in enumerate(self.words.split())}

    @cached_property
    def letters(self) -> list[str]:
        """The letters of the words in small letters."""
        return sorted(self.ordinary.letters)


def _is_joined(word: re.Match[str]) -> bool:
    """Whether digits or underscores are joined to the letters."""
    start, end = word.span()
    neighbours = word.string[max(0, start - 1) : start] + word.string[end : end + 1]
    return any(character.isalnum() or character == "_" for character in neighbours)


def _neighbours(word: str, letters: Sequence[str]) -> Iterator[str]:
    """All that one error makes of a word: a letter lost, exchanged with the next, replaced or added."""
    for place in range(len(word) + 1):
        head, tail = word[:place], word[place:]
        yield head + tail[1:]
        yield head + tail[1:2] + tail[:1] + tail[2:]
        for letter in letters:
            yield head + letter + tail[1:]
            yield head + letter + tail
