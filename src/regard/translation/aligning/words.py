"""Text in words, and which word each of a tokenizer's pieces belongs to."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from regard.translation.text.normalisation import normalise
from regard.translation.text.tokenizer import Tokenizer

_START = "▁"
_BYTE = re.compile("<0x([0-9A-F]{2})>")
# What may stand at the end of a word and before another one without a space: l' eau, e - mail.
_ELIDING = "'’-"
# What white space keeps apart, and the number of its word.
_Part = tuple[str, int]


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

    Aligners' texts have punctuation apart, "casa ?", which no translator has learnt to read: marks are written
    the way the tokenizer has fewer pieces for, "casa?", and stay words of their own. A word that holds white
    space owns the pieces of all its parts; one that is empty owns none.
    """
    parts = [
        (part, number) for number, word in enumerate(words) for part in normalise(word).split()
    ]
    written = _written(tokenizer, parts)
    ids = tokenizer.encode(" ".join("".join(part for part, _ in each) for each in written))
    tags = len(tokenizer.prefix) if ids else 0
    owners = [
        _owner(written[min(place, len(written) - 1)], character)
        for place, character in _places(tokenizer.pieces(ids[tags:]))
    ]
    return Words(list(words), ids, [-1] * tags + owners)


def _written(tokenizer: Tokenizer, parts: Sequence[_Part]) -> list[list[_Part]]:
    """The parts, those together that have no space between them."""
    written = [[part] for part in parts[:1]]
    for (before, _), (after, number) in pairwise(parts):
        if _joins(tokenizer, before, after):
            written[-1].append((after, number))
        else:
            written.append([(after, number)])
    return written


def _joins(tokenizer: Tokenizer, before: str, after: str) -> bool:
    """Whether a mark is rather written without the space before it, or an apostrophe without that after it."""
    if after[0].isalnum() and before[-1] not in _ELIDING:
        return False
    return len(tokenizer.encode(before + after)) < len(tokenizer.encode(f"{before} {after}"))


def _owner(written: Sequence[_Part], character: int) -> int:
    for part, number in written:
        if character < len(part):
            return number
        character -= len(part)
    return written[-1][1]


def _places(pieces: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Where each piece begins: the number of what is written without a space, and a character of that."""
    place, character = -1 if pieces and pieces[0].startswith(_START) else 0, 0
    for piece in pieces:
        if byte := _BYTE.fullmatch(piece):
            # All bytes of a character are where its first one is.
            character += int(byte[1], 16) >> 6 != 0b10
            yield place, character - 1
            continue
        if piece.startswith(_START):
            place, character = place + 1, 0
        yield place, character
        inside, _, last = piece.removeprefix(_START).rpartition(_START)
        if inside:
            place, character = place + inside.count(_START) + 1, 0
        character += len(last)
