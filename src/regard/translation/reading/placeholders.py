"""Names and numbers that a translation lost: translated again with known words in their places, then put back.

Placeholders as in Post et al. 2019 ("An Exploration of Placeholding in Neural Machine Translation"), with three
differences: they are ordinary names and numbers of the training text, so that every model has them; they are used only
where a model did not copy by itself; and a translation that has not all of them is thrown away.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise, product
from typing import NamedTuple

from regard.translation.reading.readings import Reading, SentenceTranslator, clearer
from regard.translation.results import Candidate, Translation, Word
from regard.translation.settings.search import Search
from regard.translation.text.letters import WORD, begins_sentence, has_capital, without_accents
from regard.translation.words import KnownWords

_YEARS, _COUNTS = ["1985", "1996", "1972", "2004"], ["25", "36", "48", "74"]
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
        return _pattern(self.word, self.term.number)


def with_placeholders(
    words: KnownWords,
    readings: Sequence[Reading],
    translator: SentenceTranslator,
    search: Search,
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
            _filled(readings[row].source, row_words) for row, row_words in placeholders.items()
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
    numbers, unmatched = [], words.marks.plain(translation.text)
    for term in _numbers(words, source):
        pattern = _pattern(words.marks.plain(term.target), number=True)
        unmatched, count = pattern.subn(" ", unmatched, count=1)
        numbers += [] if count else [term]
    if not re.search(r"\d", _TIME.sub(" ", unmatched)):
        numbers = []
    names = (term for term in _names(words, source) if not _has(translation.text, term))
    return sorted([*numbers, *names])


def _numbers(words: KnownWords, source: str) -> Iterator[Term]:
    for number in words.marks.numbers(source):
        counts = source[number.end() : number.end() + 2].strip().isalpha()
        target = words.marks.as_target(number[0], counts=counts)
        yield Term(number.start(), number[0], target, True, True)


def _names(words: KnownWords, source: str) -> Iterator[Term]:
    """The words that may be names; neighbours that are names for sure are one."""
    matches = list(WORD.finditer(source))
    # Where every word has a capital, none tells a name.
    if not words.names or not any(word[0].islower() for word in matches):
        return
    terms: list[Term] = []
    for word in matches:
        if not (has_capital(word[0]) and words.may_be_name(word)):
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
    return _pattern(bare, number=False).search(text) is not None


def _placeholders(
    words: KnownWords, source: str, terms: Sequence[Term], attempt: int
) -> list[Placeholder]:
    """A placeholder for each term that has a free one: no word of the source, another one in each attempt."""
    occupied = set(re.findall(r"\w+", source))
    placeholders: dict[str, str] = {}  # terms that are equal have the same
    for term in terms:
        pool = words.names
        if term.number:
            pool = _YEARS if _YEAR.fullmatch(term.text) else _COUNTS
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


def _pattern(text: str, number: bool) -> re.Pattern[str]:
    """A pattern for a name or number that is no part of another; 80 also for the end of 1980."""
    if not number:
        return re.compile(rf"(?<!\w){re.escape(text)}(?!\w)")
    century = "(?:19|20)?" if re.fullmatch(r"\d\d", text) else ""
    return re.compile(rf"(?<!\d)(?<!\d[.,:/-]){century}{re.escape(text)}(?!\d|[.,:/-]\d)")


def _filled(source: str, placeholders: Sequence[Placeholder]) -> str:
    pieces, end = [], 0
    for term, word in placeholders:
        pieces += [source[end : term.start], word]
        end = term.stop
    return "".join([*pieces, source[end:]])


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
    source_texts = {placeholder: placeholder.term.text for placeholder in placeholders}
    target_texts = {placeholder: placeholder.term.target for placeholder in placeholders}
    source_words = [_put(word, source_texts) for word in _filled(source, placeholders).split()]
    candidates = [_candidate(candidate, source_words, target_texts) for candidate in complete]
    read_as = {term.text: word for term, word in placeholders}
    return replace(translation, **vars(candidates[0]), alternatives=candidates, read_as=read_as)


def _candidate(
    candidate: Candidate, source_words: Sequence[str], target_texts: Mapping[Placeholder, str]
) -> Candidate:
    """A candidate with names and numbers. Those with spaces were one word: positions behind them change."""
    texts = [_put(word.text, target_texts) for word in candidate.words]
    sources, targets = _places(source_words), _places(texts)
    return replace(
        candidate,
        text=_put(candidate.text, target_texts),
        words=[
            Word(word_text, word.confidence)
            for word, text in zip(candidate.words, texts, strict=True)
            for word_text in text.split()
        ],
        alignment=[
            pair for a, b in candidate.alignment for pair in product(sources[a], targets[b])
        ],
    )


def _put(text: str, terms: Mapping[Placeholder, str]) -> str:
    for placeholder, term in terms.items():
        text = placeholder.pattern.sub(term, text)  # letters, digits and marks: nothing to escape
    return text


def _places(texts: Iterable[str]) -> list[range]:
    """The positions of the words of each text in all texts joined by spaces."""
    ends = [0, *accumulate(len(text.split()) for text in texts)]
    return [range(*pair) for pair in pairwise(ends)]
