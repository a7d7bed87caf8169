"""Text in words, and which word each of a tokenizer's pieces belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regard.translation.text.normalisation import normalise
from regard.translation.text.tokenizer import Tokenizer

_START = "▁"


@dataclass(frozen=True)
class Words:
    """A sentence as words and as pieces.

    Attributes:
        words: as they were given.
        ids: the pieces of the whole sentence.
        owners: for each piece the number of its word, from 0; -1 for a tag, which is no word's.
    """

    words: list[str]
    ids: list[int]
    owners: list[int]

    def first(self, most: int) -> Words:
        """The same words with at most so many pieces: what a model with few positions can read."""
        return Words(self.words, self.ids[:most], self.owners[:most])

    @property
    def unread(self) -> int:
        """Words of which no piece is left: no link can reach them."""
        return len(self.words) - len(set(self.owners) - {-1})


def words_of(line: str) -> list[str]:
    """The words of a line: what white space keeps apart once the line is normalised.

    >>> words_of("  El  gato\\tnegro. ")
    ['El', 'gato', 'negro.']
    """
    return normalise(line).split()


def in_pieces(tokenizer: Tokenizer, words: Sequence[str]) -> Words:
    """Cut words into pieces as one sentence, and remember whose each piece is.

    A word that holds white space owns the pieces of all its parts; one that is empty owns none.
    """
    parts = [
        (part, number) for number, word in enumerate(words) for part in normalise(word).split()
    ]
    ids = tokenizer.encode(" ".join(part for part, _ in parts))
    tags = len(tokenizer.prefix) if ids else 0
    places = _places(tokenizer.pieces(ids[tags:]))
    owners = [parts[min(place, len(parts) - 1)][1] for place in places]
    return Words(list(words), ids, [-1] * tags + owners)


def _places(pieces: Sequence[str]) -> list[int]:
    """For each piece the number of the blank-separated part in which it begins."""
    place = -1 if pieces and pieces[0].startswith(_START) else 0
    places = []
    for piece in pieces:
        place += piece.startswith(_START)
        places.append(place)
        place += piece.count(_START, 1)
    return places
