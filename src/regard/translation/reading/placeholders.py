"""Names and numbers that a translation lost: translated again with known words in their places, then put back.

Placeholders as in Post et al. 2019 ("An Exploration of Placeholding in Neural Machine Translation"), with three
differences: they are ordinary names and numbers of the training text, so that every model has them; they are used only
where a model did not copy by itself; and a translation that has not all of them is thrown away.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from regard.translation.reading.readings import Reading, SentenceTranslator, clearer
from regard.translation.results import Translation
from regard.translation.settings.search import Search
from regard.translation.text.letters import WORD, begins_sentence, has_capital, without_accents
from regard.translation.text.replacements import Replacement, replaced, unmoved_words
from regard.translation.words import KnownWords

_YEARS, COUNTS = ["1985", "1996", "1972", "2004"], ["25", "36", "48", "74"]
_YEAR = re.compile("1[0-9]{3}|20[0-9]{2}")
_TIME = re.compile(r"\b\d{1,2}:\d\d\b")
_ATTEMPTS = 2
# A name is in a translation, too, where a word begins with so many of its letters: Finlandia, Finland.
_LETTERS = 5


class Term(NamedTuple):
    """A name or number of a source.

    Attributes:
        start: its first character.
        text: as the source writes it.
        target: as the translation is to write it.
        number: whether it is a number.
        sure: whether it is certainly a name or number, and not the first word of a sentence.
    """

    start: int
    text: str
    target: str
    number: bool
    sure: bool

    @property
    def stop(self) -> int:
        return self.start + len(self.text)


class Placeholder(NamedTuple):
    """A word that stands for a term."""

    term: Term
    word: str

    @property
    def pattern(self) -> re.Pattern[str]:
        return standing_alone(self.word)


def with_placeholders(
    words: KnownWords, readings: Sequence[Reading], translator: SentenceTranslator, search: Search
) -> list[Reading]:
    """The readings of sentences; where a translation lost names or numbers, those with placeholders."""
    readings = list(readings)
    terms = {row: lost_terms(words, *reading) for row, reading in enumerate(readings)}
    for attempt in range(_ATTEMPTS):
        placeholders = {}
        for row, row_terms in terms.items():
            # The first attempt may have failed because of a word that is no name.
            tried = [term for term in row_terms if term.sure or not attempt]
            if tried:
                placeholders[row] = _placeholders(words, readings[row].source, tried, attempt)
        if not placeholders:
            break
        texts = [
            replaced(readings[row].source, _filling(row_words))
            for row, row_words in placeholders.items()
        ]
        translations = translator.translate(texts, search)
        for (row, row_words), new in zip(placeholders.items(), translations, strict=True):
            source, old = readings[row]
            restored = _restored(new, source, row_words)
            if restored is not None and _better(words, restored, old, source, row_words):
                readings[row] = Reading(source, restored)
                del terms[row]
    return readings


def lost_terms(words: KnownWords, source: str, translation: Translation) -> list[Term]:
    """The names and numbers of a source that its translation does not have.

    A translation may write a number as a word, and a time in another way. So a number is lost only where another number
    that is no time is in its place.
    """
    numbers, source_numbers = [], list(_numbers(words, source))
    unmatched = words.marks.plain(translation.text) if source_numbers else ""
    for term in source_numbers:
        pattern = standing_alone(words.marks.plain(term.target))
        unmatched, count = pattern.subn(" ", unmatched, count=1)
        numbers += [] if count else [term]
    if not re.search(r"\d", _TIME.sub(" ", unmatched)):
        numbers = []
    invented = bool(words.invented(source, translation.text))
    names = (term for term in _names(words, source, invented) if not _has(translation.text, term))
    return sorted([*numbers, *names])


def _numbers(words: KnownWords, source: str) -> Iterator[Term]:
    for number in words.marks.numbers(source):
        counts = source[number.end() : number.end() + 2].strip().isalpha()
        target = words.marks.as_target(number[0], counts=counts)
        yield Term(number.start(), number[0], target, True, True)


def _names(words: KnownWords, source: str, invented: bool) -> Iterator[Term]:
    """The words that may be names; neighbours that are names for sure are one.

    Where the translation has `invented` words, each word with a capital may be one.
    """
    matches = list(WORD.finditer(source))
    # Where every word has a capital, none tells a name.
    if not words.names or not any(word[0].islower() for word in matches):
        return
    terms: list[Term] = []
    for word in matches:
        if not has_capital(word[0]) or not (
            words.is_unknown(word) or (invented and words.is_rare(word))
        ):
            continue
        start, sure = word.start(), not begins_sentence(word) and not words.has(word[0].lower())
        if sure and terms and terms[-1].sure and source[terms[-1].stop : start] in (" ", "-"):
            start = terms.pop().start
        name = source[start : word.end()]
        terms.append(Term(start, name, name, False, sure))
    yield from terms


def _has(text: str, name: Term) -> bool:
    text, bare = without_accents(text), without_accents(name.text)
    if len(bare) > _LETTERS and re.search(rf"\b{re.escape(bare[:_LETTERS])}", text):
        return True
    return standing_alone(bare).search(text) is not None


def _placeholders(
    words: KnownWords, source: str, terms: Sequence[Term], attempt: int
) -> list[Placeholder]:
    """A placeholder for each term that has a free one: no word of the source, another one in each attempt."""
    occupied = set(re.findall(r"\w+", source))
    placeholders: dict[str, str] = {}  # terms that are equal have the same
    for term in terms:
        pool = words.names
        if term.number:
            pool = _YEARS if _YEAR.fullmatch(term.text) else COUNTS
        free = [word for word in pool if word not in occupied][attempt:]
        if term.text not in placeholders and free:
            placeholders[term.text] = free[0]
            occupied.add(free[0])
    return [
        Placeholder(term, placeholders[term.text]) for term in terms if term.text in placeholders
    ]


def _better(
    words: KnownWords,
    new: Translation,
    old: Translation,
    source: str,
    placeholders: Sequence[Placeholder],
) -> bool:
    """Whether a translation with placeholders replaces the old one."""
    if any(term.number for term in lost_terms(words, source, new)) or clearer(old, new):
        return False
    return all(term.sure for term, _ in placeholders) or clearer(new, old)


def standing_alone(text: str) -> re.Pattern[str]:
    """A pattern for a name or number that is no part of another; 80 also for the end of 1980."""
    if not text[:1].isdigit():
        return re.compile(rf"(?<!\w){re.escape(text)}(?!\w)")
    century = "(?:19|20)?" if re.fullmatch(r"\d\d", text) else ""
    return re.compile(rf"(?<!\d)(?<!\d[.,:/-]){century}{re.escape(text)}(?!\d|[.,:/-]\d)")


def _filling(placeholders: Sequence[Placeholder]) -> list[Replacement]:
    return [Replacement(term.start, term.stop, word) for term, word in placeholders]


def _restored(
    translation: Translation, source: str, placeholders: Sequence[Placeholder]
) -> Translation | None:
    """The translation with the names and numbers; None where it has not every placeholder as often as the source."""
    counts = Counter(placeholder.word for placeholder in placeholders)
    complete = [
        candidate
        for candidate in translation.alternatives
        if all(
            len(placeholder.pattern.findall(candidate.text)) == counts[placeholder.word]
            for placeholder in placeholders
        )
    ]
    if not complete or complete[0] != translation.alternatives[0]:
        return None
    filling = _filling(placeholders)
    source_words = unmoved_words(source, filling)
    candidates = [
        candidate.with_replacements(_putting(candidate.text, placeholders), source_words)
        for candidate in complete
    ]
    read_as = {term.text: word for term, word in placeholders}
    return translation.with_candidates(candidates, read_as=read_as)


def _putting(text: str, placeholders: Sequence[Placeholder]) -> list[Replacement]:
    """The changes that put names and numbers in the places of the words that stand for them."""
    targets = {placeholder.pattern: placeholder.term.target for placeholder in placeholders}
    return sorted(
        Replacement(*match.span(), target)
        for pattern, target in targets.items()
        for match in pattern.finditer(text)
    )
