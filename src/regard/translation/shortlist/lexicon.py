"""A lexicon of word translations, learned from sentence pairs by IBM Model 1.

    p(target, links | source) = prod_i 1/|source| p(t_i | s_links(i))

Brown et al. 1993, "The mathematics of statistical machine translation", Computational Linguistics 19(2).
Expectation: each target word is divided among the words of its source, in proportion to p(t | s).
Maximisation: p(t | s) is the share of t in everything that s received.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ROUNDS = range(5)
_AT_ONCE = 500  # sentences

Ids = NDArray[np.int64]
Sentences = Sequence[tuple[Sequence[int], Sequence[int]]]


@dataclass(frozen=True)
class Lexicon:
    """p(target | source) of every pair of words that stood in one sentence pair, sorted by source, then target."""

    sources: Ids
    targets: Ids
    probabilities: NDArray[np.float64]


def learn(sentences: Sentences, vocabulary: int, rounds: Iterable[object] = ROUNDS) -> Lexicon:
    """Model 1 after some rounds from p(t | s) = const.

    Args:
        sentences: the word ids of sources and of their translations; neither side is empty.
        vocabulary: of the targets, whose ids are below it.

    Returns:
        The lexicon; its memory is that of the different pairs of words.
    """
    cells = _cells(sentences, vocabulary)
    sources, targets = np.divmod(cells, vocabulary)
    likely = np.ones(len(cells))
    for _ in rounds:
        got = np.zeros(len(cells))
        for keys, words in _meetings(sentences, vocabulary):
            # Looking up sorted keys without duplicates is much faster.
            once, again = np.unique(keys, return_inverse=True)
            places = np.searchsorted(cells, once)
            share = likely[places][again]
            share /= np.bincount(words, share)[words]
            got[places] += np.bincount(again, share)
        likely = got / np.bincount(sources, got)[sources]
    return Lexicon(sources, targets, likely)


def best(lexicon: Lexicon, count: int) -> tuple[Ids, Ids]:
    """The `count` likeliest translations of each source word: source and target side by side, best first."""
    order = np.lexsort((-lexicon.probabilities, lexicon.sources))
    sources = lexicon.sources[order]
    rank = np.arange(len(order)) - np.searchsorted(sources, sources)
    kept = order[rank < count]
    return lexicon.sources[kept], lexicon.targets[kept]


def _cells(sentences: Sentences, vocabulary: int) -> Ids:
    """Every pair of words that meet, once and in order; sorted anew only when there are twice as many."""
    cells, waiting = np.empty(0, np.int64), list[Ids]()
    for keys, _ in _meetings(sentences, vocabulary):
        waiting.append(np.unique(keys))
        if sum(map(len, waiting)) > len(cells):
            cells, waiting = np.unique(np.concatenate([cells, *waiting])), []
    return np.unique(np.concatenate([cells, *waiting]))


def _meetings(sentences: Sentences, vocabulary: int) -> Iterator[tuple[Ids, Ids]]:
    """Every source word with every target word of its sentence: source x vocabulary + target, and which target it is.

    Target words are numbered from 0 in each group of sentences.
    """
    for start in range(0, len(sentences), _AT_ONCE):
        group = sentences[start : start + _AT_ONCE]
        keys = [np.add.outer(t, np.multiply(s, vocabulary)).ravel() for s, t in group]
        each = np.repeat([len(s) for s, _ in group], [len(t) for _, t in group])
        yield np.concatenate(keys), np.repeat(np.arange(len(each)), each)
