"""Sentence pairs as arrays: words by number, and the pair of types of each cell, compiled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.loops.compiling import compiled

Ints = NDArray[np.int32]
Places = NDArray[np.int64]


@dataclass(frozen=True)
class Side:
    """All sentences of one side: the number of each word's form, the forms, and where each sentence begins."""

    numbers: Ints
    forms: list[str]
    begins: Places

    @classmethod
    def of(cls, sentences: Sequence[Sequence[str]], letters: int | None) -> Side:
        """The sentences by lower-cased words, or by so many of their first letters."""
        forms: dict[str, int] = {}
        by_word: dict[str, int] = {}
        for word in _words(sentences):
            if word not in by_word:
                by_word[word] = forms.setdefault(word.lower()[:letters], len(forms))
        numbers = np.fromiter((by_word[word] for word in _words(sentences)), np.int32)
        return cls(numbers, list(forms), _running(map(len, sentences)))


@dataclass(frozen=True)
class TypePairs:
    """The pairs of forms that stand in one sentence pair, and the pair of each cell.

    Attributes:
        source, target: by pair, the numbers of its forms.
        cells: by cell, the number of its pair. Cell (i, j) of a sentence pair lies at its begin + j * source words + i.
        begins: where the cells of each sentence pair begin.
    """

    source: Ints
    target: Ints
    cells: Ints
    begins: Places

    @classmethod
    def of(cls, source: Side, target: Side) -> TypePairs:
        lengths = np.diff(source.begins) * np.diff(target.begins)
        begins = _running(lengths)
        cells = np.empty(begins[-1], np.int32)
        # As many pairs as cells at most. Pages that are not written to take no memory.
        sources, targets = np.empty_like(cells), np.empty_like(cells)
        sentence = np.repeat(np.arange(len(lengths), dtype=np.int32), np.diff(source.begins))
        by_type = np.argsort(source.numbers, kind="stable").astype(np.int32)
        latest, numbers = np.full((2, len(target.forms)), -1, np.int32)
        count = _number(
            by_type,
            sentence,
            source.numbers,
            target.numbers,
            (source.begins, target.begins, begins),
            (latest, numbers),
            (sources, targets, cells),
        )
        return cls(sources[:count].copy(), targets[:count].copy(), cells, begins)


@compiled
def _number(
    by_type: Any, sentence: Any, source: Any, target: Any, begins: Any, marks: Any, answer: Any
) -> int:
    """Number the pairs of types, one source type after the other, without a table of all pairs."""
    source_begins, target_begins, cell_begins = begins
    # By target type: the source type that it was last seen with, and the number of this pair.
    latest, numbers = marks
    sources, targets, cells = answer
    count = 0
    for position in by_type:
        n, s = sentence[position], source[position]
        length = source_begins[n + 1] - source_begins[n]
        at = cell_begins[n] + position - source_begins[n]
        for j in range(target_begins[n], target_begins[n + 1]):
            t = target[j]
            if latest[t] != s:
                latest[t], numbers[t] = s, count
                sources[count], targets[count] = s, t
                count += 1
            cells[at] = numbers[t]
            at += length
    return count


def _words(sentences: Iterable[Sequence[str]]) -> Iterable[str]:
    return (word for sentence in sentences for word in sentence)


def _running(lengths: Iterable[int]) -> Places:
    """0 and the running sums."""
    return np.cumsum(np.fromiter((0, *lengths), np.int64))
