"""Lines that occur again, in a split or in another one, found by hashes so that no line is kept."""

from __future__ import annotations

import hashlib
import re
from array import array
from collections import defaultdict

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


class Prints:
    """A 64-bit hash of each line: one corpus of 100 million lines in 3,700 has two lines with the same hash.

    Attributes:
        lines: the number of each line in its file.
        hashes: of each line, by kind ("pairs", "sources", "targets"), of the text as it is and folded.
    """

    def __init__(self) -> None:
        self.lines: array[int] = array("Q")
        self.hashes: defaultdict[tuple[str, bool], array[int]] = defaultdict(lambda: array("Q"))

    def add(self, number: int, pair: Pair) -> None:
        self.lines.append(number)
        for fold in (False, True):
            source, target = (folded(text) if fold else text for text in pair[:2])
            for kind, text in zip(KINDS, (f"{source}\t{target}", source, target), strict=True):
                digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
                self.hashes[kind, fold].append(int.from_bytes(digest, "little"))

    def repeated(self, kind: str) -> list[int]:
        """The numbers of the lines that are equal to an earlier one, in order."""
        first_rows = np.unique(self._of(kind), return_index=True)[1]
        return [int(number) for number in np.delete(np.array(self.lines), first_rows)]

    def shared(self, earlier: Prints, kind: str, *, fold: bool) -> list[int]:
        """The numbers of the lines that occur in another split as well, in order."""
        is_shared = np.isin(self._of(kind, fold), np.unique(earlier._of(kind, fold)), kind="sort")
        return [int(number) for number in np.array(self.lines)[is_shared]]

    def _of(self, kind: str, fold: bool = False) -> NDArray[np.uint64]:
        return np.array(self.hashes[kind, fold])
