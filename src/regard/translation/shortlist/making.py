"""A shortlist from a corpus, measured on pairs that it was not learnt from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from regard.errors import DataError
from regard.translation.runs import Tokenizers
from regard.translation.shortlist.lexicon import ROUNDS, Sentences
from regard.translation.shortlist.table import ALWAYS, EACH, Shortlist
from regard.translation.text.corpora import Pair

# One pair of so many is kept for measuring; of a larger corpus so many are taken, evenly.
_MEASURED, _LEARNT = 100, 200_000
# Pieces of a side at most: every word meets every other, and what one long line says of its words is little.
_LONGEST = 200


@dataclass(frozen=True)
class Coverage:
    """How a shortlist does on sentence pairs.

    Attributes:
        words: share of the target's pieces that are on their sentence's list.
        sentences: share of the targets all of whose pieces are.
        length: of a list, in the mean.
    """

    words: float
    sentences: float
    length: float


@dataclass(frozen=True)
class Made:
    """A shortlist, the number of pairs it was learnt from, and how it does on `measured` others.

    `left_out` pairs were empty or too long.
    """

    shortlist: Shortlist
    learnt: int
    measured: int
    left_out: int
    coverage: Coverage


def make(
    pairs: Sequence[Pair],
    tokenizers: Tokenizers,
    each: int = EACH,
    always: int = ALWAYS,
    rounds: Iterable[object] = ROUNDS,
) -> Made:
    """The shortlist of a corpus; see `Shortlist.learn`. Raises `DataError`: fewer than two that can be used."""
    taken = pairs[:: -(-len(pairs) // _LEARNT) or 1]
    usable = [
        ids for ids in _ids(taken, tokenizers) if all(1 <= len(side) <= _LONGEST for side in ids)
    ]
    if len(usable) < 2:
        raise DataError(
            f"{len(usable)} usable sentence pairs: a shortlist is learnt from 2 or more of 1 to {_LONGEST} pieces"
        )
    measured = usable[::_MEASURED]
    learnt = [ids for i, ids in enumerate(usable) if i % _MEASURED]
    made = Shortlist.learn(learnt, tokenizers, each, always, rounds)
    left_out = len(taken) - len(usable)
    return Made(made, len(learnt), len(measured), left_out, coverage(made, measured))


def coverage(shortlist: Shortlist, sentences: Sentences) -> Coverage:
    """How a shortlist does on sentences and their translations; there must be some."""
    words = hits = whole = length = 0
    for source, target in sentences:
        listed = shortlist.of(source)
        there = int(torch.isin(torch.tensor(target), listed).sum())
        words, hits, length = words + len(target), hits + there, length + len(listed)
        whole += there == len(target)
    return Coverage(hits / words, whole / len(sentences), length / len(sentences))


def _ids(pairs: Sequence[Pair], tokenizers: Tokenizers) -> list[tuple[list[int], list[int]]]:
    tagged = {tags: tokenizers.source.tagged(tags) for tags in {pair.tags for pair in pairs}}
    return [
        (tagged[pair.tags].encode(pair.source), tokenizers.target.encode(pair.target))
        for pair in pairs
    ]
