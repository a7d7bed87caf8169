"""Counts of a corpus: the lengths of its sentences, its use of a vocabulary, and its problems by kind."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from regard.translation.text.tokenizer import UNK, Tokenizer

_BYTE = re.compile("<0x[0-9A-F]{2}>")
# Places of each kind of problem that are listed.
_EXAMPLES = 3
# At most so many different unknown characters are counted.
_MOST_UNKNOWN = 10_000
Level = Literal["error", "warning"]


class Lengths(Counter[int]):
    """The number of sentences of each length, exact and small for any corpus.

    >>> Lengths([1, 2, 2, 9]).share(0.5)
    2
    """

    def share(self, share: float) -> int:
        """The smallest length that at least this part of the sentences does not exceed; 0 without sentences."""
        count = 0
        for length in sorted(self):
            count += self[length]
            if count >= share * self.total():
                return length
        return 0

    def summary(self) -> dict[str, float | int]:
        """Total, mean, median, 95th and 99th percentile, and the longest; 0 without sentences."""
        total = sum(length * count for length, count in self.items())
        return {
            "total": total,
            "mean": round(total / max(1, self.total()), 2),
            "median": self.share(0.5),
            "p95": self.share(0.95),
            "p99": self.share(0.99),
            "longest": max(self, default=0),
        }


class Vocabulary:
    """The use of a vocabulary by one side of a corpus.

    Attributes:
        pieces: the number of uses of each id.
        words: the number of words, which white space separates.
        unknown: the number of uses of each character outside the vocabulary.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.pieces: Counter[int] = Counter()
        self.words = 0
        self.unknown: Counter[str] = Counter()
        names = tokenizer.pieces(range(len(tokenizer)))
        self._bytes = {place for place, name in enumerate(names) if _BYTE.fullmatch(name)}

    def add(self, text: str) -> int:
        """Count a sentence. Returns its number of pieces."""
        ids = self.tokenizer.encode(text)
        self.pieces.update(ids)
        self.words += len(text.split())
        if not self._bytes.isdisjoint(ids):
            for character in self.tokenizer.unknown(text):
                if character in self.unknown or len(self.unknown) < _MOST_UNKNOWN:
                    self.unknown[character] += 1
        return len(ids)

    def summary(self) -> dict[str, object]:
        """Sizes and shares, and the ten most frequent unknown characters."""
        total = self.pieces.total()
        usable = [i for i in range(len(self.tokenizer)) if i > 3 and i not in self._bytes]
        used = sum(i in self.pieces for i in usable)
        spelled = sum(self.pieces[i] for i in self._bytes)
        return {
            "size": len(self.tokenizer),
            "pieces": total,
            "used": used,
            "usable": len(usable),
            "pieces_per_word": round(total / self.words, 3) if self.words else 0.0,
            "byte_pieces": spelled,
            "byte_share": round(spelled / total, 6) if total else 0.0,
            "unknown_pieces": self.pieces[UNK],
            "unknown_characters": self.unknown.total(),
            "most_unknown": [
                {"character": c, "code": f"U+{ord(c):04X}", "count": n}
                for c, n in self.unknown.most_common(10)
            ],
        }


@dataclass
class Finding:
    """One kind of problem.

    Attributes:
        level: an error would stop a training, a warning would not.
        where: the first places, "file:line" or "file:line:byte".
    """

    level: Level
    fault: str
    count: int = 0
    where: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        more = self.where and self.count > len(self.where)
        places = ", ".join([*self.where, *(["..."] if more else [])])
        count = f" ({self.count:,})" if self.count > 1 else ""
        return f"{self.level}: {self.fault}{count}" + (f": {places}" if places else "")


class Findings(dict[tuple[Level, str], Finding]):
    """All problems, in the order in which their kinds were first found."""

    def add(self, level: Level, problem: str, *where: str, count: int = 1) -> None:
        """Count one more, or several, with places if there are any."""
        finding = self.setdefault((level, problem), Finding(level, problem))
        finding.count += count
        finding.where += where[: _EXAMPLES - len(finding.where)]

    def add_lines(self, problem: str, name: str, numbers: Sequence[int]) -> None:
        """Warn of lines of one file."""
        if numbers:
            places = (f"{name}:{number}" for number in numbers[:_EXAMPLES])
            self.add("warning", problem, *places, count=len(numbers))

    def of(self, level: Level) -> list[Finding]:
        return [finding for finding in self.values() if finding.level == level]
