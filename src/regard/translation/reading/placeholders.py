"""Names and numbers that a translation lost: translated again with known words in their places, then put back.

Placeholders as in Post et al. 2019 ("An Exploration of Placeholding in Neural Machine Translation"), with three
differences: they are ordinary names and numbers of the training text, so that every model has them; they are used only
where a model did not copy by itself; and a translation that has not all of them is thrown away.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise, product
from typing import NamedTuple

from regard.translation.reading.again import Reading, Translate, clearer
from regard.translation.results import Candidate, Translation, Word
from regard.translation.text.names import WORD, has_capital
from regard.translation.words import KnownWords

_YEARS, _COUNTS = ["1985", "1996", "1972", "2004"], ["25", "36", "48", "74"]
_YEAR = re.compile("1[0-9]{3}|20[0-9]{2}")
_ATTEMPTS = 2


class Part(NamedTuple):
    """A name or number of a source.

    Attributes:
        start: its first character.
        text: as the source writes it.
        written: as the translation is to write it.
        number: whether it is a number.
        sure: whether it is certainly a name or number.
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
    name: str

    @property
    def pattern(self) -> re.Pattern[str]:
        return _whole(self.name, self.part.number)


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

    A translation may write numbers as words. So a number is lost only where another number is in its place.
    """
    numbers, left = [], found.text
    for part in _numbers(known, source):
        left, count = _whole(part.written, number=True).subn(" ", left, count=1)
        numbers += [] if count else [part]
    names = [
        part
        for part in _names(known, source)
        if not _whole(part.text, number=False).search(found.text)
    ]
    return sorted(names + (numbers if re.search(r"\d", left) else []))


def _numbers(known: KnownWords, source: str) -> Iterator[Part]:
    for found in known.marks.numbers(source):
        yield Part(found.start(), found[0], known.marks.written(found[0]), True, True)


def _names(known: KnownWords, source: str) -> Iterator[Part]:
    """Words with a capital that no training source has; neighbours are one name."""
    words = list(WORD.finditer(source))
    # Where every word has a capital, none tells a name.
    if not known.names or not any(word[0].islower() for word in words):
        return
    parts: list[Part] = []
    for word in words:
        sure = _is_name(known, word[0], first=word is words[0])
        if sure is None:
            continue
        start = word.start()
        if parts and source[parts[-1].stop : start] in (" ", "-"):
            last = parts.pop()
            start, sure = last.start, sure or last.sure
        name = source[start : word.end()]
        parts.append(Part(start, name, name, False, sure))
    # Neighbours that are known in small letters belong to a title.
    yield from (part for part in parts if part.sure or WORD.fullmatch(part.text))


def _is_name(known: KnownWords, word: str, *, first: bool) -> bool | None:
    """Whether a word is a name for sure (True) or maybe (False); None where it is none."""
    if not has_capital(word) or known.has(word):
        return None
    small = word.lower()
    if not first:
        return not known.has(small)
    if known.has(small) or known.proper.cost(small) > known.ordinary.cost(small):
        return None
    return False


def _stands(known: KnownWords, source: str, parts: Sequence[Part], attempt: int) -> list[Stand]:
    """A placeholder for each part: no two the same, none that the source has, others in each attempt."""
    taken = set(re.findall(r"\w+", source))
    stands = []
    for part in parts:
        pool = known.names
        if part.number:
            pool = _YEARS if _YEAR.fullmatch(part.text) else _COUNTS
        turned = [*pool[attempt:], *pool[:attempt]]
        name = next((name for name in turned if name not in taken), turned[0])
        taken.add(name)
        stands.append(Stand(part, name))
    return stands


def _better(
    known: KnownWords, made: Translation, old: Translation, source: str, stands: Sequence[Stand]
) -> bool:
    if any(part.number for part in lost(known, source, made)):
        return False
    return all(part.sure for part, _ in stands) or clearer(made, old)


def _whole(text: str, number: bool) -> re.Pattern[str]:
    """A pattern for a name or number that is no part of another."""
    kind = r"\d" if number else r"\w"
    return re.compile(rf"(?<!{kind}){re.escape(text)}(?!{kind}|[.,:/-]\d)")


def _read(source: str, stands: Sequence[Stand]) -> str:
    """The source with placeholders."""
    text, end = "", 0
    for part, name in stands:
        text, end = text + source[end : part.start] + name, part.stop
    return text + source[end:]


def _restored(one: Translation, source: str, stands: Sequence[Stand]) -> Translation | None:
    """The translation with the names and numbers; None where it has not every placeholder once."""
    whole = [
        candidate
        for candidate in one.alternatives
        if all(len(stand.pattern.findall(candidate.text)) == 1 for stand in stands)
    ]
    if not whole or whole[0] != one.alternatives[0]:
        return None
    own = {stand: stand.part.text for stand in stands}
    written = {stand: stand.part.written for stand in stands}
    read = [_put(word, own) for word in _read(source, stands).split()]
    candidates = [_candidate(each, read, written) for each in whole]
    read_as = {part.text: name for part, name in stands}
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
    """The positions of the words of each text, where all stand one behind the other."""
    ends = [0, *accumulate(len(text.split()) for text in texts)]
    return [range(*pair) for pair in pairwise(ends)]
