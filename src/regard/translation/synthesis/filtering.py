"""The choice of sentences to translate back and of pairs to keep, with counts of the others."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, field

from regard.errors import ConfigurationError
from regard.translation.text.normalisation import normalise

# The ratio of shorter sentences is not checked: "Oui." is "Yes, it is."
_SHORT = 10
_LEFT_OUT = {
    "empty": "empty",
    "repeated": "repeated",
    "long": "too long",
    "untranslated": "without a translation",
    "same": "translated to themselves",
    "uneven": "with lengths too far apart",
}


@dataclass
class Tally:
    """Counts of lines: of those that were read, those left out for each reason, and those written as pairs."""

    read: int = 0
    empty: int = 0
    repeated: int = 0
    long: int = 0
    untranslated: int = 0
    same: int = 0
    uneven: int = 0
    written: int = 0

    def left_out(self) -> str:
        """The counts of lines that were left out, as a text.

        >>> Tally(read=9, empty=2, uneven=1, written=6).left_out()
        '2 empty, 1 with lengths too far apart'
        """
        counts = asdict(self)
        return ", ".join(
            f"{counts[name]:,} {why}" for name, why in _LEFT_OUT.items() if counts[name]
        )


@dataclass
class PairFilter:
    """Filters lines in one pass, with a hash of 64 bits for each line.

    Attributes:
        longest: the most pieces of a sentence.
        ratio: the most that one side of a pair may be longer, in pieces; for ten pieces or more.
        tally: the counts so far.
    """

    longest: int = 250
    ratio: float = 3.0
    tally: Tally = field(default_factory=Tally)
    _digests: set[bytes] = field(default_factory=set)
    _all: hashlib._Hash = field(default_factory=hashlib.sha256)

    def __post_init__(self) -> None:
        if not 1 <= self.longest <= 512:
            raise ConfigurationError(f"longest {self.longest}: use a whole number, 1 to 512")
        if not 1 < self.ratio <= 1000:
            raise ConfigurationError(f"ratio {self.ratio:g}: use a number above 1, at most 1000")

    def text(self, line: str) -> str | None:
        """The sentence of a line, normalised; None for an empty or repeated line."""
        text = normalise(line)
        data = text.encode()
        self._all.update(data + b"\n")
        mark = hashlib.blake2b(data, digest_size=8).digest()
        if not text:
            self.tally.empty += 1
            return None
        if mark in self._digests:
            self.tally.repeated += 1
            return None
        self._digests.add(mark)
        return text

    @property
    def digest(self) -> str:
        """The sha256 of all lines so far."""
        return self._all.hexdigest()

    def keeps(self, target: str, source: str, target_pieces: int, source_pieces: int) -> bool:
        """Whether a sentence and its translation are a pair to keep; the others are counted."""
        shorter, longer = sorted((target_pieces, source_pieces))
        if not source:
            self.tally.untranslated += 1
        elif source == target:
            self.tally.same += 1
        elif longer >= _SHORT and longer > self.ratio * shorter:
            self.tally.uneven += 1
        else:
            self.tally.written += 1
            return True
        return False
