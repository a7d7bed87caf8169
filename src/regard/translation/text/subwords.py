"""Text as arrays of ids; each pass draws a new segmentation of every word."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice, repeat

import numpy as np
from numpy.typing import NDArray

from regard.translation.text.tokenizer import Tokenizer

# Segmentations kept for each word (l of the paper), and the longest word that is given more than its best one.
_KEPT = 16
_LONGEST_SAMPLED = 32


@dataclass(frozen=True)
class Ragged:
    """Rows of unequal length, end to end: row i is `items[starts[i]:starts[i + 1]]`."""

    items: NDArray[np.int32]
    starts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, row: int) -> NDArray[np.int32]:
        return self.items[self.starts[row] : self.starts[row + 1]]

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.starts)

    @classmethod
    def of(cls, rows: Iterable[Iterable[int]]) -> Ragged:
        arrays = [np.fromiter(row, dtype=np.int32) for row in rows]
        lengths = np.array([len(array) for array in arrays], dtype=np.int64)
        return cls(np.concatenate([np.empty(0, np.int32), *arrays]), _starts(lengths))

    def take(self, rows: NDArray[np.int64]) -> Ragged:
        """Some rows, in the given order, as a new ragged array."""
        lengths = self.lengths[rows]
        starts = _starts(lengths)
        within = np.arange(starts[-1]) - np.repeat(starts[:-1], lengths)
        return Ragged(self.items[np.repeat(self.starts[rows], lengths) + within], starts)

    def then(self, rows: Ragged) -> Ragged:
        """These rows and then those of another ragged array."""
        starts = np.concatenate([self.starts[:-1], self.starts[-1] + rows.starts])
        return Ragged(np.concatenate([self.items, rows.items]), starts)


class Segmenter:
    """Subword regularisation (Kudo 2018, arXiv 1804.10959, section 3.2) over a whole corpus at once.

    A sentence is segmented word by word. The segmentation x of a word is drawn from its 16 best with probability
    proportional to P(x)^alpha; with alpha 0 the best one is always taken. The segmentations of a word are computed
    once, so that a pass draws one random number for each word.
    """

    def __init__(self, tokenizer: Tokenizer, alpha: float) -> None:
        self._tokenizer, self._alpha = tokenizer, alpha
        self._known: dict[str | Sequence[str], int] = {}
        self._first = np.empty(0, np.int64)
        self._pieces = Ragged.of([])
        self._cumulative = np.ones((0, _KEPT), dtype=np.float32)

    def words(self, lines: Iterable[str], tags: Iterable[Sequence[str]] = repeat(())) -> Ragged:
        """Lines as the numbers of their words. `tags` has those of each line, which come first and are never cut."""
        numbers = self._known
        count = len(numbers)
        words = Ragged.of(
            [
                numbers.setdefault(word, len(numbers))
                for word in (*([tag] if tag else []), *line.split(" "))
            ]
            for line, tag in zip(lines, tags, strict=False)
        )
        self._learn(list(numbers)[count:])
        return words

    def _learn(self, words: Sequence[str | Sequence[str]]) -> None:
        segmentations = [_segmentations(self._tokenizer, word, self._alpha) for word in words]
        counts = np.array([len(candidates) for candidates in segmentations], dtype=np.int64)
        self._first = np.concatenate([self._first, len(self._pieces) + _starts(counts)[:-1]])
        self._pieces = self._pieces.then(
            Ragged.of(ids for candidates in segmentations for ids, _ in candidates)
        )
        cumulative = np.ones((len(words), _KEPT), dtype=np.float32)
        for row, candidates in zip(cumulative, segmentations, strict=True):
            odds = np.exp(
                self._alpha * np.array([score - candidates[0][1] for _, score in candidates])
            )
            row[: len(candidates)] = np.cumsum(odds / odds.sum())
            row[len(candidates) - 1 :] = 1.0
        self._cumulative = np.concatenate([self._cumulative, cumulative])

    def __len__(self) -> int:
        return len(self._known)

    def keep(self, count: int) -> None:
        """Forget all words but the first so many."""
        self._known = dict(islice(self._known.items(), count))
        pieces = self._first[count] if count < len(self._first) else len(self._pieces)
        starts = self._pieces.starts[: pieces + 1]
        self._pieces = Ragged(self._pieces.items[: starts[-1]], starts)
        self._first, self._cumulative = self._first[:count], self._cumulative[:count]

    def unseen(self) -> frozenset[str]:
        """The pieces of text that no segmentation of its words has, so that an encoder never learns them.

        A vocabulary has such pieces when the target shares it, or when a letter occurs only as a word: the sources of
        the task reverse have the piece `▁b`, but never the piece `b` that "ab" needs.
        """
        text = set(filter(self._tokenizer.is_text, range(len(self._tokenizer))))
        return frozenset(self._tokenizer.pieces(sorted(text - set(self._pieces.items.tolist()))))

    def best(self, words: Ragged) -> Ragged:
        return self._lines(words, self._first[words.items])

    def draw(
        self, words: Ragged, random: np.random.Generator, longest: int | None = None
    ) -> Ragged:
        """Every line in a segmentation drawn anew; in its best one where the draw has more than `longest` pieces."""
        items, first_choices = words.items, self._first[words.items]
        draws = random.random(len(items), dtype=np.float32)
        choices = np.zeros(len(items), dtype=np.int64)
        for column in range(_KEPT - 1):
            choices += draws >= self._cumulative[items, column]
        lines = self._lines(words, first_choices + choices)
        if longest is not None and lines.lengths.max(initial=0) > longest:
            choices[np.repeat(lines.lengths > longest, words.lengths)] = 0
            lines = self._lines(words, first_choices + choices)
        return lines

    def _lines(self, words: Ragged, segmentation: NDArray[np.int64]) -> Ragged:
        pieces = self._pieces.take(segmentation)
        return Ragged(pieces.items, pieces.starts[words.starts])


def _segmentations(
    tokenizer: Tokenizer, word: str | Sequence[str], alpha: float
) -> list[tuple[list[int], float]]:
    if not isinstance(word, str):
        return [(list(tokenizer.tagged(word).prefix), 0.0)]
    if alpha == 0 or len(word) > _LONGEST_SAMPLED:
        return [(tokenizer.encode(word), 0.0)]
    return tokenizer.segmentations(word, _KEPT)


def _starts(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
