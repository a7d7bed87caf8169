"""Which texts share the most, and the rarest, words with another one."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import numpy as np
import torch
from jaxtyping import Int
from scipy.sparse import csr_array
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
        ids = [[self._number(word) for word in _words(text)] for text in texts]
        counts = _counts(ids, len(self._numbers))
        texts_with = np.bincount(counts.indices, minlength=len(self._numbers))
        rarity = np.log1p((len(ids) - texts_with + 0.5) / (texts_with + 0.5)).astype(np.float32)
        lengths = np.diff(counts.indptr)
        relative = np.repeat(lengths / max(1.0, lengths.mean()), lengths) if ids else lengths
        damping = _SATURATION * (1 - _LENGTH + _LENGTH * relative.astype(np.float32))
        # Negative, so that the best are the lowest, like distances.
        counts.data *= -(_SATURATION + 1) / (counts.data + damping) * rarity[counts.indices]
        self._scores = counts.T.tocsr()

    def _number(self, word: str) -> int:
        return self._numbers.setdefault(word, len(self._numbers))

    def most_similar(self, texts: Iterable[str], count: int) -> Int[Tensor, "texts count"]:
        """The numbers of the texts of the greatest scores, of equals the first; -1 where no more share a word."""
        from regard.translation.datastore import nearest_loops  # with the compiler

        known = self._numbers
        ids = [[known[word] for word in _words(text) if word in known] for text in texts]
        numbers = np.empty((len(ids), count), np.int64)
        best = np.empty((len(ids), count), np.float32)
        postings = self._scores
        columns = postings.indptr, postings.indices, postings.data
        sums = np.empty(postings.shape[1], np.float32)
        nearest_loops.most_similar(*_joined(ids), *columns, sums, best, numbers)
        return torch.from_numpy(numbers)


def _words(text: str) -> list[str]:
    return WORD.findall(text.casefold())


def _joined(ids: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """The ids of all texts, one after the other, and where each text ends."""
    ends = np.cumsum([len(row) for row in ids], dtype=np.int64)
    return np.fromiter(chain.from_iterable(ids), np.int64), ends


def _counts(ids: list[list[int]], words: int) -> csr_array:
    """How often each text has each word."""
    flat, ends = _joined(ids)
    starts = np.concatenate([[0], ends])
    counts = csr_array((np.ones(len(flat), np.float32), flat, starts), shape=(len(ids), words))
    counts.sum_duplicates()
    return counts
