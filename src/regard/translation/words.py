"""The words of a training text: which are known, which are names, how accents and numbers are written.

`words.json` in a run folder keeps them.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, Self

from regard.translation.runs.layout import WORDS
from regard.translation.runs.statistics import Statistics
from regard.translation.text.boundaries import Boundaries
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
from regard.translation.text.replacements import Replacement, replaced
from regard.translation.text.spans import Span
from regard.translation.text.trigrams import Trigrams

# Names and words that are kept.
_NAMES, _WORDS = 8, 60_000
# Of the words with a capital inside the sources, so many must be names: German nouns have capitals, too.
_SHARE = 0.5
# The frequent words are so many.
_FREQUENT = 2000
# Words in small letters that a title may have, at most so long.
_SHORT = 3
# Words in capitals.
_CAPITAL = r"[^\W\d_a-zß-öø-ÿ]{2,}"
_CAPITALS = re.compile(rf"(?<!\w){_CAPITAL}(?: {_CAPITAL})*(?!\w)")
_ROMAN = re.compile("[IVXLCDM]+")
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
        targets: the words of the targets in small letters, the most frequent first, with spaces between them.
        boundaries: where sentences without final marks end.
    """

    NAME, LARGEST, DESCRIPTION = WORDS, 8 * 2**20, "words of a model"

    words: str
    names: list[str]
    ordinary: Trigrams
    proper: Trigrams
    marks: Marks
    accents: Accents
    numbers: bool = True
    targets: str = ""
    boundaries: Boundaries | None = None

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
        target_counts = Counter(
            word.lower() for pair in pairs for word in WORD.findall(pair.target)
        )
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
            targets=" ".join(word for word, _ in target_counts.most_common(_WORDS)),
            boundaries=None if is_multilingual else Boundaries.learn(sources),
        )

    def merged(self, words: Self) -> Self:
        """These and the words of another text, from which the same model is trained on."""
        update = {
            "words": " ".join(dict.fromkeys([*self.rank, *words.rank])),
            "names": self.names or words.names,
            "numbers": self.numbers and words.numbers,
            "targets": " ".join(dict.fromkeys(chain(self.targets.split(), words.targets.split()))),
            "boundaries": words.boundaries or self.boundaries,
        }
        return self._with_fields(**update)

    def knowing(self, sources: str, targets: str) -> Self:
        """These with more words of sources and of targets, which are known from now on."""
        words = " ".join(dict.fromkeys([*self.rank, *sources.split()]))
        if not self.targets:  # of an earlier version, which tells no inventions
            return self._with_fields(words=words)
        targets_of_both = dict.fromkeys([*self.targets.split(), *targets.split()])
        return self._with_fields(words=words, targets=" ".join(targets_of_both))

    def _with_fields(self, **fields: Any) -> Self:
        """These with other fields; a copy would keep what was computed from the old ones."""
        return type(self)(
            **{name: getattr(self, name) for name in type(self).model_fields} | fields
        )

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
            neighbours = filter(self.rank.__contains__, _neighbours(small, self.letters))
            best = min(neighbours, key=self.rank.__getitem__, default=None)
            return word if best is None else with_capitals_of(word, best)

        return WORD.sub(corrected_word, text)

    def is_rare(self, word: re.Match[str]) -> bool:
        """Whether a word, in small letters, is not among the most frequent ones."""
        return not _is_joined(word) and self.rank.get(word[0].lower(), _FREQUENT) >= _FREQUENT

    def is_unknown(self, word: re.Match[str]) -> bool:
        """Whether a word of a sentence has capitals, and no training source has it."""
        text, small = word[0], word[0].lower()
        if text == small or self.has(text) or _is_joined(word):
            return False
        return not (begins_sentence(word) and self.has(small))

    def may_be_name(self, word: re.Match[str]) -> bool:
        """Whether a word of a sentence may be a name that no training source has; the first one must look like one."""
        small = word[0].lower()
        if not self.is_unknown(word) or not begins_sentence(word):
            return self.is_unknown(word)
        if not self.proper.letters.issuperset(small):
            return False
        return self.proper.cost(small) <= self.ordinary.cost(small)

    def in_sentence_case(self, text: str) -> str:
        """A text in Title Case in small letters, but for its first word and for names; any other text unchanged."""
        if sum(map(str.isupper, text)) < 2:
            return text
        later = [word for word in WORD.finditer(text) if not begins_sentence(word)]
        ordinary = [word for word in later if self._is_ordinary(word[0])]
        small = sum(word[0][:1].islower() and len(word[0]) > _SHORT for word in later)
        if len(ordinary) < 2 or small:
            return text
        changes = [Replacement(*word.span(), word[0].lower()) for word in ordinary]
        return replaced(text, changes)

    def _is_ordinary(self, word: str) -> bool:
        """Whether a word with a capital is known in small letters, and better than with capitals, as names are."""
        rank, unknown = self.rank, len(self.rank)
        return word[:1].isupper() and rank.get(word.lower(), unknown) < rank.get(word, unknown)

    def capitals(self, line: str) -> Iterator[Span]:
        """The words in capitals alone, among others, that are known in small letters; neighbours together."""
        if not _CAPITALS.search(line) or line.isupper():
            return
        for match in _CAPITALS.finditer(line):
            words = match[0].split()
            if all(self._is_ordinary(word) and not _ROMAN.fullmatch(word) for word in words):
                small = match[0].lower()
                begins = begins_sentence(match)
                yield Span(*match.span(), small.capitalize() if begins else small, "capitals")

    def invented(self, source: str, text: str) -> list[str]:
        """The words of a translation that neither the training text nor the source has."""
        if not self.targets:
            return []
        source_words = set(map(str.lower, WORD.findall(source)))
        return [
            word
            for word in WORD.findall(text)
            if word.lower() not in self._targets and word.lower() not in source_words
        ]

    @cached_property
    def _targets(self) -> frozenset[str]:
        return frozenset(self.targets.split())

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
