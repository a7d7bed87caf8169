"""How the two sides of a corpus write numbers."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Self

from regard.translation.text.corpora import Pair

NUMBER = re.compile(r"\d+(?:[.,:/-]\d+)*")
_SPACED = re.compile(rf"\d{{1,3}}(?: \d{{3}})+(?:,\d+)?(?!\d)|{NUMBER.pattern}")
_GROUPED = re.compile(r"(?<![\d.,])\d{1,3}([., ])\d{3}(?:\1\d{3})*(?![\d.,]*\d)")
_DIGIT = re.compile(r"\d")
# With fewer grouped numbers on a side its writing is unknown.
_EVIDENCE = 5


class Marks(NamedTuple):
    """The marks between thousands of source and target: "." or "," or " "; "" where it is unknown.

    >>> marks = Marks.learn([Pair("Son 2.000 yenes.", "It is 2,000 yen.")] * 5)
    >>> marks.grouped(["1", "234", "567"]), marks.decimal("3", "14")
    (('1.234.567', '1,234,567'), ('3,14', '3.14'))
    """

    source: str
    target: str

    @classmethod
    def learn(cls, pairs: Sequence[Pair]) -> Self:
        return cls(_mark(pair.source for pair in pairs), _mark(pair.target for pair in pairs))

    def numbers(self, source: str) -> Iterator[re.Match[str]]:
        return (_SPACED if self.source == " " else NUMBER).finditer(source)

    def decimal(self, integer: str, fraction: str) -> tuple[str, str]:
        """A decimal with the mark of each side; a point where it is unknown."""
        source, target = ("," if mark in (".", " ") else "." for mark in self)
        return f"{integer}{source}{fraction}", f"{integer}{target}{fraction}"

    def grouped(self, groups: Sequence[str]) -> tuple[str, str]:
        """A number of thousands with the mark of each side; without marks where one is unknown."""
        source, target = self if all(self) else ("", "")
        return source.join(groups), target.join(groups)

    def as_target(self, number: str, *, counts: bool = True) -> str:
        """A number of a source as the target writes it; one whose marks may mean two things stays as it is.

        Args:
            counts: whether it counts something. Nine digits or more in groups of three that count nothing are
                telephone numbers, mostly, and stay as they are.

        >>> marks = Marks(".", ",")
        >>> [marks.as_target(text) for text in ("1.234,5", "0,75", "1,234", "18:30", "4.2")]
        ['1,234.5', '0.75', '1,234', '18:30', '4.2']
        >>> [marks.as_target("963.360.788", counts=counts) for counts in (True, False)]
        ['963,360,788', '963.360.788']
        """
        integer, point, fraction = number.partition("," if self.source in (".", " ") else ".")
        groups = integer.split(self.source) if self.source else [integer]
        if not all(self) or not all(map(str.isdecimal, [*groups, fraction or "0"])):
            return number
        if len(groups) == 1:
            ambiguous = len(fraction) == 3 and integer != "0"
            return self.decimal(integer, fraction)[1] if point and not ambiguous else number
        if len(groups[0]) > 3 or any(len(group) != 3 for group in groups[1:]):
            return number
        if len(groups) > 2 and len(groups[0]) == 3 and not counts and groups[-1] != "000":
            return number
        grouped = self.grouped(groups)[1]
        return self.decimal(grouped, fraction)[1] if point else grouped

    def plain(self, text: str) -> str:
        """A text of the target without marks between thousands.

        >>> Marks(".", ",").plain("It costs 1,234.50, or 2,5.")
        'It costs 1234.50, or 2,5.'
        """
        mark = re.escape(self.target)
        return re.sub(rf"(?<=\d){mark}(?=\d{{3}}(?!\d))", "", text) if mark else text


def is_number(text: str) -> bool:
    """Whether a text has digits and no letters: a number or several, with their marks.

    >>> [text for text in ("-5", "1 2 3", "12:30", "50 %", "5 km", "IV", "...") if is_number(text)]
    ['-5', '1 2 3', '12:30', '50 %']
    """
    kinds = {character.isalpha() for character in text if character.isalnum()}
    return kinds == {False}


def copies_numbers(pairs: Iterable[Pair]) -> bool:
    """Whether targets have the digits of sources that are numbers only; True without such sources.

    >>> copies_numbers([Pair("1.000", "1,000")]), copies_numbers([Pair("5", "five")])
    (True, False)
    """
    same = [
        _DIGIT.findall(pair.source) == _DIGIT.findall(pair.target)
        for pair in pairs
        if is_number(pair.source)
    ]
    return 2 * sum(same) >= len(same)


def _mark(lines: Iterable[str]) -> str:
    marks = Counter(found[1] for line in lines for found in _GROUPED.finditer(line))
    (mark, count), *_ = (*marks.most_common(1), ("", 0))
    return mark if count >= _EVIDENCE else ""
