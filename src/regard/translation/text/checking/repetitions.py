"""Lines that occur again, in a split or in another one, found by hashes so that no line is kept."""

from __future__ import annotations

import hashlib
import re
from array import array
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from regard.translation.text.corpora import Pair

KINDS = ("pairs", "sources", "targets")
_NO_WORD = re.compile(r"[\W_]+")


def folded(text: str) -> str:
    """A text without case, punctuation and spacing, so that near copies are equal.

    >>> folded("Où est-il ?") == folded("où est il")
    True
    """
    return _NO_WORD.sub(" ", text.casefold()).strip()


@dataclass
class Prints:
    """A 64-bit hash of each line: one corpus of 100 million lines in 3,700 has two lines with the same hash.

    Attributes:
        exact: by kind ("pairs", "sources", "targets") a hash of 8 bytes for each line.
        folded: the same of the folded text.
        lines: the number of each line in its file.
    """

    exact: dict[str, array[int]] = field(default_factory=lambda: _empty())
    folded: dict[str, array[int]] = field(default_factory=lambda: _empty())
    lines: array[int] = field(default_factory=lambda: array("Q"))

    def add(self, number: int, pair: Pair) -> None:
        """Add the hashes of a line."""
        self.lines.append(number)
        for prints, source, target in (
            (self.exact, pair.source, pair.target),
            (self.folded, folded(pair.source), folded(pair.target)),
        ):
            prints["sources"].append(_hash(source))
            prints["targets"].append(_hash(target))
            prints["pairs"].append(_hash(f"{source}\t{target}"))

    def repeated(self, kind: str) -> list[int]:
        """The numbers of the lines that are equal to an earlier one, in order."""
        hashes = _values(self.exact[kind])
        first = np.unique(hashes, return_index=True)[1]
        again = np.ones(len(hashes), dtype=bool)
        again[first] = False
        return self._numbers(again)

    def shared(self, earlier: Prints, kind: str, *, fold: bool) -> list[int]:
        """The numbers of the lines that occur in another split as well, in order."""
        ours, theirs = (each.folded if fold else each.exact for each in (self, earlier))
        return self._numbers(np.isin(_values(ours[kind]), np.unique(_values(theirs[kind]))))

    def _numbers(self, chosen: NDArray[np.bool_]) -> list[int]:
        numbers = _values(self.lines)[chosen]
        return [int(number) for number in numbers]


def _empty() -> dict[str, array[int]]:
    return {kind: array("Q") for kind in KINDS}


def _values(hashes: array[int]) -> NDArray[np.uint64]:
    return np.frombuffer(hashes, dtype=np.uint64) if hashes else np.empty(0, np.uint64)


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
