"""Reasons to doubt translations: counted while they are written, and reported once on standard error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from regard.cli.output import report

if TYPE_CHECKING:
    from regard.translation.results import Translation

# How many lines, characters or pieces a note lists.
_NAMED = 10
_SPACE = "▁"
_NOTES = {
    "cut": "{count} of {total} sentences were longer than {longest} pieces and were cut",
    "unknown": "{parts} in {count} of {sentences}: not in the model's vocabulary, and may be translated "
    "wrongly: {places}",
    "unseen": "{parts} in {count} of {sentences}: they never occurred in the training sources and may be "
    "translated wrongly: {places}",
    "invented": "{parts} in {count} of {sentences}: the model wrote words that no text has; words of the source are in "
    "their places: {places}",
    "repeats": "{count} of {translations} searched again because of repetitions: {places}",
    "unfinished": "{count} of {translations} reached the greatest length allowed and stopped there: {places}",
    "no words": "no words in {count} of {sources}: {places}",
    "unknown script": "a script that no training source has in {count} of {sources}: {places}",
    "other language": "another language than that of the training sources, it seems, in {count} of {sources}: {places}",
    "odd length": "{count} of {translations} much longer or shorter than training pairs are: {places}",
    "overlapping terms": "{parts} in {count} of {sentences}: longer ones that overlap were placed: {places}",
    "low confidence": "low confidence in {count} of {translations}, worth a check: {places}",
}
_PARTS = {
    "unknown": "unknown character",
    "unseen": "word piece",
    "invented": "invented word",
    "overlapping terms": "term",
}


@dataclass
class _Doubt:
    """How many translations are doubtful for a reason, and the first few of them: a stream may be endless."""

    count: int = 0
    places: list[int] = field(default_factory=list)
    pieces: int = 0
    different: dict[str, None] = field(default_factory=dict)

    def add(self, place: int, pieces: Iterable[str]) -> None:
        self.count += 1
        if len(self.places) <= _NAMED:
            self.places.append(place)
        for piece in pieces:
            self.pieces += 1
            if len(self.different) <= _NAMED:
                self.different[piece] = None


@dataclass
class DoubtCounts:
    """Counts of doubtful translations, by reason.

    Attributes:
        longest: the largest number of pieces of a source that are read.
        unit: "line" or "sentence"; the numbers count these, from 1.
        total: the number of translations.
    """

    longest: int
    unit: str = "line"
    total: int = 0
    _doubts: dict[str, _Doubt] = field(default_factory=lambda: {name: _Doubt() for name in _NOTES})

    def add(self, translations: Iterable[Translation], places: Iterator[int] | None = None) -> None:
        """Count translations, whose numbers are taken from `places`, or else count from 1."""
        for translation in translations:
            self.total += 1
            place = self.total if places is None else next(places)
            pieces = {
                "unknown": translation.unknown,
                "unseen": list(map(_readable, translation.unseen)),
                "invented": translation.invented,
                "overlapping terms": translation.overlapping,
            }
            for name in translation.doubts:
                self._doubts[name].add(place, pieces.get(name, ()))

    def as_object(self) -> dict[str, int]:
        return {name: doubt.count for name, doubt in self._doubts.items()}

    def say(self) -> None:
        for name, doubt in self._doubts.items():
            if doubt.count:
                different = _listing(list(doubt.different), " ")
                note = _NOTES[name].format(
                    count=doubt.count,
                    total=self.total,
                    longest=self.longest,
                    sentences=_number(self.total, "sentence") + f" ({different})" * bool(different),
                    sources=_number(self.total, "source"),
                    translations=_number(self.total, "translation"),
                    parts=_number(doubt.pieces, _PARTS.get(name, "")),
                    places=f"{self.unit}{'s' * (doubt.count > 1)} {_listing(doubt.places, ', ')}",
                )
                report.note(note)


def _readable(piece: str) -> str:
    """A piece as a person reads it: "b" begins a word, "-b" continues one."""
    return piece.removeprefix(_SPACE) or piece if piece.startswith(_SPACE) else f"-{piece}"


def _listing(values: Sequence[object], between: str) -> str:
    named = [str(each) for each in values[:_NAMED]]
    return between.join(named + ["..."] * (len(values) > _NAMED))


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"
