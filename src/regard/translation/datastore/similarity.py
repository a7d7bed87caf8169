"""Which texts share the most, and the rarest, words with another one."""

from collections.abc import Iterable
from itertools import chain

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.translation.text.letters import WORD

_SATURATION, _LENGTH = 1.2, 0.3  # k and b of BM25


class WordIndex:
    """Texts by their words, in small letters.

    score(q, d) = sum over the words w of q: idf(w) f (k + 1) / (f + k (1 - b + b |d| / mean |d|))
    idf(w) = log(1 + (n - n_w + 1/2) / (n_w + 1/2))

    f is how often d has w, and n_w of the n texts have it: BM25 (Robertson and Zaragoza 2009, section 3).
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._numbers: dict[str, int] = {}
        flat, ends = _concatenated(
            [[self._number(word) for word in _words(text)] for text in texts]
        )
        self._texts, size = len(ends), len(self._numbers)
        of_text = np.repeat(np.arange(self._texts), np.diff(ends, prepend=0))
        # The entries, a word of a text each, those of a word together.
        entries, counts = np.unique(flat * self._texts + of_text, return_counts=True)
        words, numbers = np.divmod(entries, max(1, self._texts))
        texts_with, lengths = np.bincount(words, minlength=size), np.bincount(numbers)
        rarity = np.log1p((self._texts - texts_with + 0.5) / (texts_with + 0.5))
        relative = lengths[numbers] * self._texts / max(1, len(entries))
        damping = _SATURATION * (1 - _LENGTH + _LENGTH * relative)
        scores = rarity[words] * counts * (_SATURATION + 1) / (counts + damping)
        self._starts = np.concatenate([[0], np.cumsum(texts_with)])
        floats = scores.astype(np.float32), rarity.astype(np.float32)
        self._columns = numbers.astype(np.int32), *floats

    def _number(self, word: str) -> int:
        return self._numbers.setdefault(word, len(self._numbers))

    def most_similar(
        self, texts: Iterable[str], count: int
    ) -> tuple[Int[Tensor, "texts count"], Float[Tensor, "texts count"]]:
        """The numbers of the texts of the greatest scores, of equals the first; -1 where no more share a word.

        Also their scores over sum idf(w), that of a text of mean length which has each word of q.
        """
        from regard.translation.datastore import nearest_loops  # with the compiler

        indexed = self._numbers
        ids = [[indexed[word] for word in _words(text) if word in indexed] for text in texts]
        numbers = np.empty((len(ids), count), np.int64)
        best = np.empty((len(ids), count), np.float32)
        sums = np.empty(self._texts, np.float32)
        nearest_loops.most_similar(
            *_concatenated(ids), self._starts, *self._columns, sums, best, numbers
        )
        return torch.from_numpy(numbers), torch.from_numpy(best)


def _words(text: str) -> list[str]:
    return WORD.findall(text.casefold())


def _concatenated(ids: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """The ids of all texts, one after the other, and where each text ends."""
    ends = np.cumsum([len(row) for row in ids], dtype=np.int64)
    return np.fromiter(chain.from_iterable(ids), np.int64), ends
