"""Sentences in words and in pieces, with the word that each piece belongs to."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from regard.translation.text.normalisation import normalise
from regard.translation.text.tokenizer import Tokenizer

_START = "▁"
_BYTE = re.compile("<0x([0-9A-F]{2})>")
# Marks that may join a word to the next one without a space: l' eau, e - mail.
_ELIDING = "'’-"
# A part without white space, and the number of its word.
_Part = tuple[str, int]


@dataclass(frozen=True)
class Words:
    """A sentence as words and as pieces.

    Attributes:
        words: as they were given.
        ids: the pieces of the whole sentence.
        owners: for each piece the number of its word, from 0; -1 for a tag.
    """

    words: list[str]
    ids: list[int]
    owners: list[int]

    def first(self, most: int) -> Words:
        """The same words with at most so many pieces."""
        return Words(self.words, self.ids[:most], self.owners[:most])

    @property
    def unread(self) -> int:
        """The number of words without a piece; they can have no links."""
        return len(self.words) - len(set(self.owners) - {-1})


def words_of(line: str) -> list[str]:
    """The words of a line after normalisation, split at white space.

    >>> words_of("  El  gato\\tnegro. ")
    ['El', 'gato', 'negro.']
    """
    return normalise(line).split()


def in_pieces(tokenizer: Tokenizer, words: Sequence[str]) -> Words:
    """Cut words into pieces as one sentence, with the word of each piece.

    Aligners' texts separate punctuation, "casa ?", but translators are trained without that space: a mark is joined,
    "casa?", where that takes fewer pieces, and stays a word. A word with white space in it owns the pieces of all its
    parts; an empty word owns none.
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
    """The parts in groups; a space separates two groups."""
    written = [[part] for part in parts[:1]]
    for (before, _), (after, number) in pairwise(parts):
        if _joins(tokenizer, before, after):
            written[-1].append((after, number))
        else:
            written.append([(after, number)])
    return written


def _joins(tokenizer: Tokenizer, before: str, after: str) -> bool:
    """Whether a mark joins the part before it, or an apostrophe the part after it."""
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
    """The start of each piece: the number of its group of parts, and the character in that group."""
    place, character = -1 if pieces and pieces[0].startswith(_START) else 0, 0
    for piece in pieces:
        if byte := _BYTE.fullmatch(piece):
            # The other bytes of a character have the place of its first one.
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
