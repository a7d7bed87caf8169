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

from regard.translation.reading.again import Reading, Translate, clearer
from regard.translation.reading.capitals import is_first, may_be_name
from regard.translation.results import Candidate, Translation, Word
from regard.translation.text.names import WORD, has_capital
from regard.translation.text.noise import without_accents
from regard.translation.words import KnownWords

_YEARS, _COUNTS = ["1985", "1996", "1972", "2004"], ["25", "36", "48", "74"]
_YEAR = re.compile("1[0-9]{3}|20[0-9]{2}")
_TIME = re.compile(r"\b\d{1,2}:\d\d\b")
_ATTEMPTS = 2
# A name is in a translation, too, where a word begins with so many of its letters: Finlandia, Finland.
_LETTERS = 5


class Part(NamedTuple):
    """A name or number of a source.

    Attributes:
        start: its first character.
        text: as the source writes it.
        written: as the translation is to write it.
        number: whether it is a number.
        sure: whether it is certainly a name or number, and not the first word of a sentence.
    """

    start: int
    text: str
    written: str
    number: bool
    sure: bool

    @property
    def stop(self) -> int:
        return self.start + len(self.text)


class Stand(NamedTuple):
    """A part and the placeholder that stands for it."""

    part: Part
    word: str

    @property
    def pattern(self) -> re.Pattern[str]:
        return _whole(self.word, self.part.number)


def carried(known: KnownWords, readings: Sequence[Reading], translate: Translate) -> list[Reading]:
    """The readings of sentences; where a translation lost names or numbers, those with placeholders."""
    readings = list(readings)
    parts = {row: lost(known, *one) for row, one in enumerate(readings)}
    for attempt in range(_ATTEMPTS):
        stands: dict[int, list[Stand]] = {}
        for row, some in parts.items():
            # The first attempt may have failed because of a word that is no name.
            left = [part for part in some if part.sure or not attempt]
            if left:
                stands[row] = _stands(known, readings[row].source, left, attempt)
        again = translate([_read(readings[row].source, own) for row, own in stands.items()])
        for (row, own), one in zip(stands.items(), again, strict=True):
            source, old = readings[row]
            made = _restored(one, source, own)
            if made is not None and _better(known, made, old, source, own):
                readings[row] = Reading(source, made)
                del parts[row]
    return readings


def lost(known: KnownWords, source: str, found: Translation) -> list[Part]:
    """The names and numbers of a source that its translation does not have.

    A translation may write a number as a word, and a time in another way. So a number is lost only where another number
    that is no time is in its place.
    """
    numbers, left = [], known.marks.plain(found.text)
    for part in _numbers(known, source):
        left, count = _whole(known.marks.plain(part.written), number=True).subn(" ", left, count=1)
        numbers += [] if count else [part]
    if not re.search(r"\d", _TIME.sub(" ", left)):
        numbers = []
    return sorted(
        [*numbers, *(part for part in _names(known, source) if not _has(found.text, part))]
    )


def _numbers(known: KnownWords, source: str) -> Iterator[Part]:
    for found in known.marks.numbers(source):
        counts = source[found.end() : found.end() + 2].strip().isalpha()
        written = known.marks.written(found[0], counts=counts)
        yield Part(found.start(), found[0], written, True, True)


def _names(known: KnownWords, source: str) -> Iterator[Part]:
    """The words that may be names; neighbours that are names for sure are one."""
    words = list(WORD.finditer(source))
    # Where every word has a capital, none tells a name.
    if not known.names or not any(word[0].islower() for word in words):
        return
    parts: list[Part] = []
    for word in words:
        if not (has_capital(word[0]) and may_be_name(known, word)):
            continue
        start, sure = word.start(), not is_first(word) and not known.has(word[0].lower())
        if sure and parts and parts[-1].sure and source[parts[-1].stop : start] in (" ", "-"):
            start = parts.pop().start
        name = source[start : word.end()]
        parts.append(Part(start, name, name, False, sure))
    yield from parts


def _has(text: str, name: Part) -> bool:
    """Whether a text has a name, or a word that begins like it."""
    text, bare = without_accents(text), without_accents(name.text)
    if len(bare) > _LETTERS and re.search(rf"\b{re.escape(bare[:_LETTERS])}", text):
        return True
    return _whole(bare, number=False).search(text) is not None


def _stands(known: KnownWords, source: str, parts: Sequence[Part], attempt: int) -> list[Stand]:
    """A placeholder for each part that has a free one: no word of the source, another one in each attempt."""
    taken = set(re.findall(r"\w+", source))
    own: dict[str, str] = {}  # parts that are equal have the same
    for part in parts:
        pool = known.names
        if part.number:
            pool = _YEARS if _YEAR.fullmatch(part.text) else _COUNTS
        free = [word for word in pool if word not in taken][attempt:]
        if part.text not in own and free:
            own[part.text] = free[0]
            taken.add(free[0])
    return [Stand(part, own[part.text]) for part in parts if part.text in own]


def _better(
    known: KnownWords, made: Translation, old: Translation, source: str, stands: Sequence[Stand]
) -> bool:
    """Whether a translation with placeholders replaces the old one."""
    if any(part.number for part in lost(known, source, made)) or clearer(old, made):
        return False
    return all(part.sure for part, _ in stands) or clearer(made, old)


def _whole(text: str, number: bool) -> re.Pattern[str]:
    """A pattern for a name or number that is no part of another; 80 also for the end of 1980."""
    if not number:
        return re.compile(rf"(?<!\w){re.escape(text)}(?!\w)")
    century = "(?:19|20)?" if re.fullmatch(r"\d\d", text) else ""
    return re.compile(rf"(?<!\d)(?<!\d[.,:/-]){century}{re.escape(text)}(?!\d|[.,:/-]\d)")


def _read(source: str, stands: Sequence[Stand]) -> str:
    """The source with placeholders."""
    pieces, end = [], 0
    for part, word in stands:
        pieces += [source[end : part.start], word]
        end = part.stop
    return "".join([*pieces, source[end:]])


def _restored(one: Translation, source: str, stands: Sequence[Stand]) -> Translation | None:
    """The translation with the names and numbers; None where it has not every placeholder as often as the source."""
    wanted = Counter(stand.word for stand in stands)
    whole = [
        candidate
        for candidate in one.alternatives
        if all(len(stand.pattern.findall(candidate.text)) == wanted[stand.word] for stand in stands)
    ]
    if not whole or whole[0] != one.alternatives[0]:
        return None
    own = {stand: stand.part.text for stand in stands}
    written = {stand: stand.part.written for stand in stands}
    read = [_put(word, own) for word in _read(source, stands).split()]
    candidates = [_candidate(each, read, written) for each in whole]
    read_as = {part.text: word for part, word in stands}
    return replace(one, **vars(candidates[0]), alternatives=candidates, read_as=read_as)


def _candidate(one: Candidate, read: Sequence[str], written: Mapping[Stand, str]) -> Candidate:
    """A candidate with names and numbers. Those with spaces were one word: positions behind them change."""
    texts = [_put(word.text, written) for word in one.words]
    words = zip(one.words, texts, strict=True)
    sources, targets = _places(read), _places(texts)
    return replace(
        one,
        text=_put(one.text, written),
        words=[Word(text, word.confidence) for word, own in words for text in own.split()],
        alignment=[pair for a, b in one.alignment for pair in product(sources[a], targets[b])],
    )


def _put(text: str, written: Mapping[Stand, str]) -> str:
    for stand, to in written.items():
        text = stand.pattern.sub(to, text)  # letters, digits and marks: nothing to escape
    return text


def _places(texts: Iterable[str]) -> list[range]:
    """The positions of the words of each text in all texts joined by spaces."""
    ends = [0, *accumulate(len(text.split()) for text in texts)]
    return [range(*pair) for pair in pairwise(ends)]
