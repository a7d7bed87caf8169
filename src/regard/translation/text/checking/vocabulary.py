"""The pieces of a vocabulary that a corpus uses, its unknown characters, and its pieces per word."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from regard.translation.text.tokenizer import UNK, Tokenizer

_BYTE = re.compile("<0x[0-9A-F]{2}>")
# At most so many different unknown characters are counted.
_MOST_UNKNOWN = 10_000


@dataclass
class Vocabulary:
    """The use of a vocabulary by one side of a corpus.

    Attributes:
        tokenizer: the tokenizer with that vocabulary.
        pieces: the number of uses of each id.
        words: the number of words, which white space separates.
        unknown: the number of uses of each character outside the vocabulary.
    """

    tokenizer: Tokenizer
    pieces: Counter[int] = field(default_factory=Counter)
    words: int = 0
    unknown: Counter[str] = field(default_factory=Counter)
    _bytes: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        names = self.tokenizer.pieces(range(len(self.tokenizer)))
        self._bytes.update(place for place, name in enumerate(names) if _BYTE.fullmatch(name))

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
