"""Where a stretch of source words is in the translation, by the links of words."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

# What a word without links costs in a stretch; words linked to others cost 1.
_UNLINKED = 0.1


class Projection(NamedTuple):
    """A stretch of target words, empty where no word is linked, and its links inside less what is against it."""

    gain: float
    places: range


def project(
    words: Collection[int], sources: Mapping[int, Collection[int]], places: range
) -> Projection:
    """The stretch of target words, among `places`, with most links to some source words and fewest to others.

    Args:
        words: positions of source words.
        sources: the source words that a target word is linked to.

    >>> project([1, 2], {0: [0], 1: [2], 2: [1], 3: [3]}, range(4))
    Projection(gain=2.0, places=range(1, 3))
    """
    best = Projection(0.0, range(places.start, places.start))
    begin, total = places.start, 0.0
    for place in places:
        linked = sources.get(place, ())
        inside = sum(word in words for word in linked)
        total += (2 * inside - len(linked)) / len(linked) if linked else -_UNLINKED
        if total > best.gain + 1e-9:
            best = Projection(total, range(begin, place + 1))
        if total <= 0:
            begin, total = place + 1, 0.0
    return best
