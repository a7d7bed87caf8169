"""Candidates whose texts are changed: their words and links follow."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import product
from operator import itemgetter

from regard.translation.evaluation.alignment import Link
from regard.translation.results import Candidate, Word
from regard.translation.text.replacements import Replacement, moved_words, replaced


def with_changes(
    candidate: Candidate, changes: Sequence[Replacement], source_words: Sequence[Collection[int]]
) -> Candidate:
    """A candidate after replacements in its text. A word that is new has the confidence 1.

    Args:
        source_words: for each word of the source, its positions in the source as it will be.
    """
    text = replaced(candidate.text, changes)
    target_words = moved_words(candidate.text, changes)
    words: list[Word] = []
    if candidate.words or not candidate.text:
        words = [Word(word, 1.0) for word in text.split()]
        for old, places in zip(candidate.words, target_words, strict=False):
            for place in places:
                words[place] = words[place].together(old)
    pairs = (
        pair
        for source, target in candidate.alignment
        for pair in product(source_words[source], target_words[target])
    )
    return replace(candidate, text=text, words=words, alignment=by_target(pairs))


def by_target(links: Iterable[Link]) -> list[Link]:
    """Different links in the order of their target words.

    >>> by_target([(1, 2), (3, 0), (0, 2), (3, 0)])
    [(3, 0), (0, 2), (1, 2)]
    """
    return sorted(set(links), key=itemgetter(1, 0))


def inverse(places: Sequence[range], count: int) -> list[list[int]]:
    """For each of `count` new words the old words that are in it.

    >>> inverse([range(0, 2), range(2, 2), range(2, 3)], 3)
    [[0], [0], [2]]
    """
    answer: list[list[int]] = [[] for _ in range(count)]
    for old, news in enumerate(places):
        for new in news:
            answer[new].append(old)
    return answer
