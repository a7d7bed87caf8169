"""Sentences in words and in pieces, with the word that each piece belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from regard.translation.text.normalisation import normalise
from regard.translation.text.tokenizer import Tokenizer

# Marks that may join a word to the next one without a space: l' eau, e - mail.
_ELIDING = "'’-"


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

    def shortened(self, pieces: int) -> Words:
        return Words(self.words, self.ids[:pieces], self.owners[:pieces])

    @property
    def unread(self) -> int:
        """The number of words without a piece; they can have no links."""
        return len(self.words) - len(set(self.owners) - {-1})


def in_spans(ids: Sequence[int], spans: Iterable[tuple[int, int]]) -> Words:
    """Pieces of which each range [start, stop) is a word; others belong to none.

    >>> in_spans([7, 8, 9], [(1, 3)]).owners
    [-1, 0, 0]
    """
    owners, words = [-1] * len(ids), 0
    for words, (start, stop) in enumerate(spans, 1):
        owners[start:stop] = [words - 1] * (stop - start)
    return Words([""] * words, list(ids), owners)


def normalised_words(line: str) -> list[str]:
    """The words of a line after normalisation, split at white space.

    >>> normalised_words("  El  gato\\tnegro. ")
    ['El', 'gato', 'negro.']
    """
    return normalise(line).split()


def in_pieces(tokenizer: Tokenizer, words: Sequence[str]) -> Words:
    """Cut words into pieces as one sentence, with the word of each piece.

    Aligners' texts separate punctuation, "casa ?", but translators are trained without that space: a mark is joined,
    "casa?", where that takes fewer pieces, and stays a word. A word with white space in it owns the pieces of all its
    parts; an empty word owns none.
    """
    texts, previous = list[str](), ""
    owner = list[int]()  # of each character of the text
    for number, word in enumerate(words):
        for text_part in normalise(word).split():
            if previous and not _joins(tokenizer, previous, text_part):
                texts.append(" ")
                owner.append(number)
            texts.append(text_part)
            owner += [number] * len(text_part)
            previous = text_part
    text = "".join(texts)
    ids = tokenizer.encode(text)
    tags = len(tokenizer.prefix) if ids else 0
    owners = [owner[min(start, len(owner) - 1)] for start in tokenizer.starts(text)]
    return Words(list(words), ids, [-1] * tags + owners)


def _joins(tokenizer: Tokenizer, head: str, tail: str) -> bool:
    """Whether a mark joins the part before it, or an apostrophe the part after it."""
    if tail[0].isalnum() and head[-1] not in _ELIDING:
        return False
    return len(tokenizer.encode(head + tail)) < len(tokenizer.encode(f"{head} {tail}"))
