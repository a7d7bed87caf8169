"""Which sentences are translated back, which of the pairs are kept, and how many were not."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from regard.errors import ConfigurationError
from regard.translation.text.normalisation import normalise

# Short sentences may well have any ratio: "Oui." is "Yes, it is."
_SHORT = 10


@dataclass
class Tally:
    """What became of the lines that were read.

    Attributes:
        read: lines so far.
        empty: without text.
        repeated: that an earlier line equals, once normalised.
        long: of too many pieces.
        untranslated: to which the model said nothing.
        same: whose translation is the sentence itself.
        uneven: whose lengths are too far apart.
        written: sentence pairs.
    """

    read: int = 0
    empty: int = 0
    repeated: int = 0
    long: int = 0
    untranslated: int = 0
    same: int = 0
    uneven: int = 0
    written: int = 0


@dataclass
class PairFilter:
    """Goes through lines once and remembers them by 64 bits each.

    Attributes:
        longest: pieces of a sentence that is translated.
        ratio: how many times as many pieces one side of a pair may have, from ten pieces on.
        tally: the counts so far.
    """

    longest: int = 250
    ratio: float = 3.0
    tally: Tally = field(default_factory=Tally)
    _seen: set[bytes] = field(default_factory=set)
    _all: hashlib._Hash = field(default_factory=hashlib.sha256)

    def __post_init__(self) -> None:
        if not 1 <= self.longest <= 512:
            raise ConfigurationError(f"longest {self.longest}: use a whole number, 1 to 512")
        if not 1 < self.ratio <= 1000:
            raise ConfigurationError(f"ratio {self.ratio:g}: use a number above 1, at most 1000")

    def text(self, line: str) -> str | None:
        """The sentence of a line, normalised; None of an empty or a repeated one."""
        text = normalise(line)
        if not self._remember(text):
            if text:
                self.tally.repeated += 1
            else:
                self.tally.empty += 1
            return None
        return text

    def pass_over(self, line: str) -> None:
        """Remember a line that was dealt with before an interruption."""
        self._remember(normalise(line))

    @property
    def digest(self) -> str:
        """The sha256 of all lines so far."""
        return self._all.hexdigest()

    def keeps(self, target: str, source: str, target_pieces: int, source_pieces: int) -> bool:
        """Whether a sentence and its translation are a pair to learn from; what is not is counted."""
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

    def _remember(self, text: str) -> bool:
        """Whether there is text that was not there before."""
        data = text.encode()
        self._all.update(data + b"\n")
        mark = hashlib.blake2b(data, digest_size=8).digest()
        if not text or mark in self._seen:
            return False
        self._seen.add(mark)
        return True
