"""The capitals and accents of words: how a corpus writes them, and how people who leave them out do.

Accents are restored after Yarowsky 1994 ("Decision Lists for Lexical Ambiguity Resolution: Application to Accent
Restoration in Spanish and French"), with the two neighbours of a word as evidence.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Sequence, Set
from functools import cached_property
from itertools import chain, pairwise
from typing import Self

from pydantic import BaseModel, ConfigDict

WORD = re.compile(r"[^\W\d_]+")
# Words and marks; an accent alone is none.
_TOKEN = re.compile(rf"{WORD.pattern}|[^\w\s\u0300-\u036f]")
# A letter that begins a word; those behind an apostrophe do not.
_BEGINNING = re.compile(r"(?<![\w'’])[^\W\d_]")
_TWO_LETTERS = re.compile(r"[^\W\d_]{2}")
# Accents only: the marks of other scripts are letters, and so is the breve of Cyrillic й.
_ACCENTS = re.compile("(?<![\u0400-\u04ff])\u0306|[\u0300-\u0305\u0307-\u036f]")
# These may stand between two words of a sentence. After any other mark another sentence may begin.
_WITHIN = " ,;'’-"
# A spelling is usual when it is so many times as frequent as all others of the same letters.
_USUAL = 10
# A neighbour decides when it was seen so often, and with one spelling in so many of the cases.
_SEEN, _SHARE = 5, 0.9


def has_capital(word: str) -> bool:
    """Whether a word of two letters or more has a capital, the first letter alone."""
    return len(word) > 1 and word.istitle()


def begins_sentence(word: re.Match[str]) -> bool:
    """Whether a word is the first of its sentence, or follows a mark after which a sentence may begin."""
    place = word.start() - 1
    while place >= 0 and word.string[place] in _WITHIN:
        place -= 1
    return place < 0 or not word.string[place].isalnum()


def as_inside(word: str, counts_inside: Counter[str]) -> str:
    """The first word of a sentence, which has a capital, as it is mostly written inside sentences."""
    return max(word.lower(), word, key=counts_inside.__getitem__)


def in_small_letters(text: str) -> str:
    """A text whose letters are all capitals in small letters; any other text, or a single letter, unchanged.

    >>> [in_small_letters(text) for text in ("¿DÓNDE ESTÁ?", "La OTAN.", "我爱NBA", "Y")]
    ['¿dónde está?', 'La OTAN.', '我爱NBA', 'Y']
    """
    capitals = all(letter.isupper() for letter in text if letter.isalpha())
    return text.lower() if capitals and _TWO_LETTERS.search(text) else text


def in_title_case(text: str) -> str:
    """
    >>> in_title_case("don't go to Tom's house")
    "Don't Go To Tom's House"
    """
    return _BEGINNING.sub(lambda match: match[0].upper(), text)


def with_capitals_of(pattern: str, word: str) -> str:
    """A word in small letters with the capitals of another.

    >>> [with_capitals_of(pattern, "está") for pattern in ("esta", "Esta", "ESTA")]
    ['está', 'Está', 'ESTÁ']
    """
    if pattern.isupper() and len(pattern) > 1:
        return word.upper()
    return word[:1].upper() + word[1:] if pattern[:1].isupper() else word


def without_accents(text: str) -> str:
    """
    >>> without_accents("¿Dónde está el niño?")
    '¿Donde esta el nino?'
    """
    return unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFD", text)))


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
        sentences = [[_spelling(token[0]) for token in _TOKEN.finditer(text)] for text in sources]
        counts_inside = Counter(
            chain.from_iterable(words[_first_word(words) + 1 :] for words in sentences)
        )
        for words in sentences:
            if words:
                place = _first_word(words)
                words[place] = as_inside(words[place], counts_inside)
        counts = Counter(chain.from_iterable(sentences))
        bare = {token_word: without_accents(token_word) for token_word in counts}
        spellings: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for token_word, count in counts.items():
            spellings[bare[token_word]][token_word] = count
        usual = {
            letters: token_word
            for letters, words in spellings.items()
            for token_word, count in words.most_common(1)
            if token_word != letters and count >= _USUAL * (words.total() - count)
        }
        after_word: defaultdict[str, Counter[str]] = defaultdict(Counter)
        before_word: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for word, neighbour in chain.from_iterable(map(pairwise, sentences)):
            pair = f"{bare[word]} {bare[neighbour]}"
            if len(spellings[bare[neighbour]]) > 1:
                after_word[pair][neighbour] += 1
            if len(spellings[bare[word]]) > 1:
                before_word[pair][word] += 1
        return cls(
            usual=sorted(usual.values()),
            after=_decided(after_word, usual, side=1),
            before=_decided(before_word, usual, side=0),
        )

    def restored(self, text: str, vocabulary: Set[str]) -> str:
        """The text with its accents. Where it has some, only words out of the vocabulary get theirs.

        >>> accents = Accents.learn(["¿Dónde está él?", "Está aquí.", "El gato."] * 5)
        >>> accents.restored("¿Donde esta el?", frozenset()), accents.restored("Esta aquí.", {"esta"})
        ('¿Dónde está él?', 'Esta aquí.')
        """
        has_accents = without_accents(text) != text
        tokens = list(_TOKEN.finditer(text))
        words = [_spelling(token[0]) for token in tokens]
        if words:
            place = _first_word(words)
            words[place] = words[place].lower()
        bare = list(map(without_accents, words))
        restored, end = "", 0
        for place, (word, token) in enumerate(zip(words, tokens, strict=True)):
            spelling = self._usual.get(word, word)
            if has_accents:
                spelling = word if word in vocabulary else spelling
            else:
                spelling = self.before.get(" ".join(bare[place : place + 2]), spelling)
                spelling = self.after.get(" ".join(bare[max(0, place - 1) : place + 1]), spelling)
            if spelling != word:
                restored += text[end : token.start()] + with_capitals_of(token[0], spelling)
                end = token.end()
        return restored + text[end:]

    @cached_property
    def _usual(self) -> dict[str, str]:
        return {without_accents(word): word for word in self.usual}


def _spelling(word: str) -> str:
    """A word in small letters, but for a single capital: Tomás is no spelling of tomas."""
    return word if has_capital(word) else word.lower()


def _first_word(words: Sequence[str]) -> int:
    """The place of the first word, behind marks."""
    return next((place for place, word in enumerate(words) if word.isalpha()), 0)


def _decided(counts: dict[str, Counter[str]], usual: dict[str, str], side: int) -> dict[str, str]:
    """The spellings that neighbours decide, where these are not the usual ones."""
    decided = {}
    for pair, spellings in sorted(counts.items()):
        ((word, count),) = spellings.most_common(1)
        bare = pair.split(" ")[side]
        if count >= max(_SEEN, _SHARE * spellings.total()) and word != usual.get(bare, bare):
            decided[pair] = word
    return decided
