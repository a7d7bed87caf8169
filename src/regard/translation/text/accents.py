"""Accents that a text was written without, by what stands beside a word.

After Yarowsky 1994 ("Decision Lists for Lexical Ambiguity Resolution: Application to Accent Restoration in Spanish and
French"), with the two neighbours of a word as evidence.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence, Set
from functools import cached_property
from itertools import chain, pairwise
from typing import Self

from pydantic import BaseModel, ConfigDict

from regard.translation.text.names import WORD, as_inside, has_capital
from regard.translation.text.noise import without_accents

# Words and marks; an accent alone is none.
_TOKEN = re.compile(rf"{WORD.pattern}|[^\w\s\u0300-\u036f]")
# A spelling is usual when it is so many times as frequent as all others of the same letters.
_USUAL = 10
# A neighbour decides when it was seen so often, and with one spelling in so many of the cases.
_SEEN, _SHARE = 5, 0.9


class Accents(BaseModel):
    """The accents of words that people may write without.

    Attributes:
        usual: words with accents. The same letters without accents almost always stand for them.
        after, before: the spelling by "neighbour word" and by "word neighbour", both without accents, where the
            neighbour decides for another spelling than the usual one. Marks are neighbours, too.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    usual: list[str] = []
    after: dict[str, str] = {}
    before: dict[str, str] = {}

    @classmethod
    def learn(cls, sources: list[str]) -> Self:
        """Those of the sources of a training text."""
        tokens = [[_spelling(token[0]) for token in _TOKEN.finditer(text)] for text in sources]
        inside = Counter(chain.from_iterable(words[_first(words) + 1 :] for words in tokens))
        for words in tokens:
            if words:
                at = _first(words)
                words[at] = as_inside(words[at], inside)
        counts = Counter(chain.from_iterable(tokens))
        bare = {word: without_accents(word) for word in counts}
        spellings: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for word, count in counts.items():
            spellings[bare[word]][word] = count
        usual = {
            letters: word
            for letters, each in spellings.items()
            for word, count in each.most_common(1)
            if word != letters and count >= _USUAL * (each.total() - count)
        }
        after: defaultdict[str, Counter[str]] = defaultdict(Counter)
        before: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for first, second in chain.from_iterable(map(pairwise, tokens)):
            pair = f"{bare[first]} {bare[second]}"
            if len(spellings[bare[second]]) > 1:
                after[pair][second] += 1
            if len(spellings[bare[first]]) > 1:
                before[pair][first] += 1
        return cls(
            usual=sorted(usual.values()),
            after=_decided(after, usual, side=1),
            before=_decided(before, usual, side=0),
        )

    def restored(self, text: str, known: Set[str]) -> str:
        """The text with its accents. Where it has some, only words that are not `known` get theirs.

        >>> accents = Accents.learn(["¿Dónde está él?", "Está aquí.", "El gato."] * 5)
        >>> accents.restored("¿Donde esta el?", frozenset()), accents.restored("Esta aquí.", {"esta"})
        ('¿Dónde está él?', 'Esta aquí.')
        """
        some = without_accents(text) != text
        found = list(_TOKEN.finditer(text))
        words = [_spelling(token[0]) for token in found]
        if words:
            first = _first(words)
            words[first] = words[first].lower()
        bare = list(map(without_accents, words))
        made, end = "", 0
        for at, (word, token) in enumerate(zip(words, found, strict=True)):
            new = self._usual.get(word, word)
            if some:
                new = word if word in known else new
            else:
                new = self.before.get(" ".join(bare[at : at + 2]), new)
                new = self.after.get(" ".join(bare[max(0, at - 1) : at + 1]), new)
            if new != word:
                made += text[end : token.start()] + like(new, token[0])
                end = token.end()
        return made + text[end:]

    @cached_property
    def _usual(self) -> dict[str, str]:
        return {without_accents(word): word for word in self.usual}


def like(new: str, old: str) -> str:
    """A word in small letters with the capitals of another.

    >>> [like("está", old) for old in ("esta", "Esta", "ESTA")]
    ['está', 'Está', 'ESTÁ']
    """
    if old.isupper() and len(old) > 1:
        return new.upper()
    return new[:1].upper() + new[1:] if old[:1].isupper() else new


def _spelling(word: str) -> str:
    """A word in small letters, but for a single capital: Tomás is no spelling of tomas."""
    return word if has_capital(word) else word.lower()


def _first(words: Sequence[str]) -> int:
    """The place of the first word, behind marks."""
    return next((at for at, word in enumerate(words) if word.isalpha()), 0)


def _decided(counts: dict[str, Counter[str]], usual: dict[str, str], side: int) -> dict[str, str]:
    """The spellings that neighbours decide, where these are not the usual ones."""

    def each() -> Iterator[tuple[str, str]]:
        for pair, spellings in sorted(counts.items()):
            ((word, count),) = spellings.most_common(1)
            bare = pair.split(" ")[side]
            decided = count >= _SEEN and count >= _SHARE * spellings.total()
            if decided and word != usual.get(bare, bare):
                yield pair, word

    return dict(each())
