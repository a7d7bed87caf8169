"""Making a shortlist from a corpus, and measuring it on other pairs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from regard.errors import DataError
from regard.translation.runs import Tokenizers
from regard.translation.shortlist.lexicon import ROUNDS, Sentences
from regard.translation.shortlist.table import ALWAYS, EACH, Shortlist
from regard.translation.text.corpora import Pair

# One pair of so many is used for measuring; at most about so many pairs of a corpus are used.
_MEASURED, _LEARNT = 100, 200_000
# The most pieces of a side: the cost is their product, and a long line gives little information about its words.
_LONGEST = 200


@dataclass(frozen=True)
class Coverage:
    """The coverage of a shortlist on sentence pairs.

    Attributes:
        words: the share of target pieces that are on the list of their sentence.
        sentences: the share of targets with all pieces on their list.
        length: the mean length of a list.
    """

    words: float
    sentences: float
    length: float


@dataclass(frozen=True)
class Made:
    """A shortlist, the number of pairs it was learned from, and its coverage on `measured` others.

    `left_out` is the number of pairs that were empty or too long.
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
    """The shortlist of a corpus (see `Shortlist.learn`). Raises `DataError` for fewer than two usable pairs."""
    taken = pairs[:: -(-len(pairs) // _LEARNT) or 1]
    source, target = tokenizers.source, tokenizers.target
    ids = [
        (source.tagged(pair.tags).encode(pair.source), target.encode(pair.target)) for pair in taken
    ]
    usable = [sides for sides in ids if all(1 <= len(side) <= _LONGEST for side in sides)]
    if len(usable) < 2:
        raise DataError(
            f"{len(usable)} usable sentence pairs: a shortlist is learnt from 2 or more of 1 to {_LONGEST} pieces"
        )
    measured = usable[::_MEASURED]
    learnt = [sides for i, sides in enumerate(usable) if i % _MEASURED]
    made = Shortlist.learn(learnt, tokenizers, each, always, rounds)
    left_out = len(taken) - len(usable)
    return Made(made, len(learnt), len(measured), left_out, coverage(made, measured))


def coverage(shortlist: Shortlist, sentences: Sentences) -> Coverage:
    """The coverage of a shortlist on one or more sentence pairs."""
    words = hits = whole = length = 0
    for source, target in sentences:
        listed = shortlist.of(source)
        there = int(torch.isin(torch.tensor(target), listed).sum())
        words, hits, length = words + len(target), hits + there, length + len(listed)
        whole += there == len(target)
    return Coverage(hits / words, whole / len(sentences), length / len(sentences))
