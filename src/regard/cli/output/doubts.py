"""Reasons to doubt translations: counted while they are written, and reported once on standard error."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from regard.cli.output import report

if TYPE_CHECKING:
    from regard.translation.translator import Translation

# How many lines, characters or pieces a note lists.
_NAMED = 10
_SPACE = "▁"


@dataclass
class LineCounts:
    """A number of lines, and the first few of them: a stream may be endless."""

    count: int = 0
    first: list[int] = field(default_factory=list)

    def add(self, number: int) -> None:
        self.count += 1
        if self.count <= _NAMED:
            self.first.append(number)

    def listed(self, unit: str) -> str:
        """ "lines 3, 17", or "lines 1, 2, ..." of many."""
        rest = ", ..." if self.count > _NAMED else ""
        return f"{unit}{'s' * (self.count > 1)} {', '.join(map(str, self.first))}{rest}"


@dataclass
class TextCounts:
    """A number of characters or pieces, and the first few different ones."""

    count: int = 0
    first: dict[str, None] = field(default_factory=dict)

    def add(self, parts: Iterable[str]) -> None:
        for part in parts:
            self.count += 1
            if len(self.first) <= _NAMED:
                self.first[part] = None

    def listed(self, unit: str, sentences: str) -> str:
        """ "2 characters in 1 of 3 sentences (é ß)"."""
        named = list(self.first)[:_NAMED] + ["..."] * (len(self.first) > _NAMED)
        return f"{_number(self.count, unit)} in {sentences} ({' '.join(named)})"


@dataclass
class Doubts:
    """Counts of doubtful translations, by kind.

    Attributes:
        longest: the largest number of pieces of a source that are read.
        unit: "line" or "sentence"; the numbers count these, from 1.
        seen: the number of translations.
    """

    longest: int
    unit: str = "line"
    seen: int = 0
    _unknown: TextCounts = field(default_factory=TextCounts)
    _unseen: TextCounts = field(default_factory=TextCounts)
    _places: dict[str, LineCounts] = field(default_factory=dict)

    def add(self, translations: Iterable[Translation]) -> None:
        for one in translations:
            self.seen += 1
            noticed = {
                "cut": one.cut > 0,
                "repeats": one.repeats,
                "unfinished": one.unfinished,
                "unknown": bool(one.unknown),
                "unseen": bool(one.unseen),
            }
            for name, is_so in noticed.items():
                if is_so:
                    self._places.setdefault(name, LineCounts()).add(self.seen)
            self._unknown.add(one.unknown)
            self._unseen.add(map(_shown, one.unseen))

    def as_object(self) -> dict[str, Any]:
        """The number of sentences of each kind of doubt."""
        names = ("cut", "repeats", "unfinished", "unknown", "unseen")
        return {name: self._at(name).count for name in names}

    def say(self) -> None:
        """A line on standard error for each kind of doubt that occurred."""
        if cut := self._at("cut").count:
            report.note(
                f"{cut} of {self.seen} sentences were longer than {self.longest} pieces and were cut"
            )
        if self._unknown.count:
            report.note(
                f"{self._unknown.listed('unknown character', self._of('unknown', 'sentence'))}: not in the "
                f"model's vocabulary, and may be translated wrongly: {self._listed('unknown')}"
            )
        if self._unseen.count:
            report.note(
                f"{self._unseen.listed('word piece', self._of('unseen', 'sentence'))}: they never occurred in the "
                f"training sources and may be translated wrongly: {self._listed('unseen')}"
            )
        if self._at("repeats").count:
            one = self._at("repeats").count == 1
            report.note(
                f"{self._of('repeats', 'translation')} "
                f"{'repeats itself' if one else 'repeat themselves'}: {self._listed('repeats')}; "
                "--no-repeat-ngram 4 forbids that"
            )
        if self._at("unfinished").count:
            report.note(
                f"{self._of('unfinished', 'translation')} reached the greatest length allowed and "
                f"stopped there: {self._listed('unfinished')}"
            )

    def _at(self, name: str) -> LineCounts:
        return self._places.get(name, LineCounts())

    def _listed(self, name: str) -> str:
        return self._at(name).listed(self.unit)

    def _of(self, name: str, what: str) -> str:
        return f"{self._at(name).count} of {_number(self.seen, what)}"


def _shown(piece: str) -> str:
    """A piece as a person reads it: "b" begins a word, "-b" continues one."""
    return piece.removeprefix(_SPACE) or piece if piece.startswith(_SPACE) else f"-{piece}"


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"
