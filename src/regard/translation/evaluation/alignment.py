"""Word links from attention weights, and their scores against gold links."""

import re
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple, Self

from jaxtyping import Float
from torch import Tensor

from regard.errors import DataError

# (source position, target position), both from 0
Link = tuple[int, int]
# Sentences that tell from where links count.
_TELLING = 5
_NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


@dataclass(frozen=True)
class AlignmentScores:
    """How links agree with a gold standard of sure and possible ones, in percent, over a corpus.

    Och and Ney 2003 ("A systematic comparison of various statistical alignment models", section 5).

    Attributes:
        aer: alignment error rate, 1 - (|A and S| + |A and P|) / (|A| + |S|); lower is better.
        precision: |A and P| / |A|.
        recall: |A and S| / |S|.
        f1: the harmonic mean of both.
        links: |A|.
    """

    aer: float
    precision: float
    recall: float
    f1: float
    links: int


def measure_alignment(
    links: Sequence[Set[Link]],
    sure: Sequence[Set[Link]],
    possible: Sequence[Set[Link]] | None = None,
) -> AlignmentScores:
    """Compare links with gold ones, sentence by sentence; a sure link is possible too.

    Without links the precision is 100, and without gold links the recall is.

    Raises:
        DataError: unequal numbers of sentences.

    >>> measure_alignment([{(0, 0), (1, 2)}], [{(0, 0), (1, 1)}], [{(1, 2)}]).aer
    25.0
    """
    possible = sure if possible is None else possible
    if not len(links) == len(sure) == len(possible):
        raise DataError(
            f"{len(links)} sentences with links, {len(sure)} with sure and {len(possible)} with "
            "possible gold links"
        )
    right_sure = right_possible = count = count_sure = 0
    for ours, certain, perhaps in zip(links, sure, possible, strict=True):
        count, count_sure = count + len(ours), count_sure + len(certain)
        right_sure += len(ours & certain)
        right_possible += len(ours & (certain | perhaps))
    precision, recall = _share(right_possible, count), _share(right_sure, count_sure)
    together = precision + recall
    return AlignmentScores(
        aer=100 * (1 - _share(right_sure + right_possible, count + count_sure)),
        precision=100 * precision,
        recall=100 * recall,
        f1=100 * 2 * precision * recall / together if together else 0.0,
        links=count,
    )


def parse_links(line: str) -> tuple[set[Link], set[Link]]:
    """The sure and the possible links of a line such as "0-0 1-2 3?2", source first.

    A hyphen makes a link sure, ? or p possible.

    Raises:
        DataError: an item is not a link.

    >>> parse_links("0-0 1?2")
    ({(0, 0)}, {(1, 2)})
    """
    sure: set[Link] = set()
    possible: set[Link] = set()
    for item in line.split():
        match = re.fullmatch(r"([0-9]{1,9})([-?p])([0-9]{1,9})", item)
        if not match:
            raise DataError(f'not a link: {item[:40]!r}; write links such as "0-0"')
        link = (int(match[1]), int(match[3]))
        (sure if match[2] == "-" else possible).add(link)
    return sure, possible


def count_from_one(sentences: Iterable[Set[Link]]) -> bool:
    """Whether links of sentences seem to count words from 1: no first word of either side has a link.

    Fewer than five sentences with links tell nothing.

    >>> count_from_one([{(1, 1), (2, 2)}] * 5), count_from_one([{(0, 1), (2, 2)}] * 5)
    (True, False)
    """
    linked = [links for links in sentences if links]
    return len(linked) >= _TELLING and all(0 not in link for links in linked for link in links)


class WordLinks(NamedTuple):
    """The links of a sentence and its translation.

    Attributes:
        links: of words that belong together.
        nearest: for each source word the target word that is most likely linked to it, whether or not one is.
    """

    links: list[Link]
    nearest: list[int]

    @classmethod
    def ordered(cls, source: int, target: int) -> Self:
        """Those of two sentences with so many words, by their order alone.

        >>> WordLinks.ordered(2, 4)
        WordLinks(links=[(0, 0), (0, 1), (1, 2), (1, 3)], nearest=[0, 2])
        """
        links = [(word * source // target, word) for word in range(target)] if source else []
        return cls(links, [word * target // source for word in range(source)])


def argmax_links(weights: Float[Tensor, "target source"]) -> set[Link]:
    """Each target word linked to the source word with the largest weight, the first of equal ones; none at 0."""
    best = weights.argmax(-1).tolist()
    looked = (weights.amax(-1) > 0).tolist() if weights.numel() else []
    return {(source, target) for target, source in enumerate(best) if looked[target]}


def mutual_links(weights: Float[Tensor, "target source"]) -> set[Link]:
    """Links whose weight is the largest of its row and of its column.

    Jalili Sabet et al. 2020, arXiv 2004.08728, section 2.2 ("Argmax").
    """
    if not weights.numel():
        return set()
    back = weights.argmax(-2).tolist()
    return {(source, target) for source, target in argmax_links(weights) if back[source] == target}


def diagonal_links(source: int, target: int) -> set[Link]:
    """Each of so many target words linked to the source word at the same relative position, as a baseline.

    >>> sorted(diagonal_links(3, 5))
    [(0, 0), (0, 1), (1, 2), (2, 3), (2, 4)]
    """
    if not source:
        return set()
    step = (source - 1) / max(1, target - 1)
    return {(round(place * step), place) for place in range(target)}


def threshold_links(weights: Float[Tensor, "target source"], threshold: float) -> set[Link]:
    """Every pair of words with a weight of at least `threshold`."""
    pairs = (weights >= threshold).nonzero().tolist()
    return {(source, target) for target, source in pairs}


def by_target(links: Iterable[Link]) -> list[Link]:
    """Different links in the order of their target words.

    >>> by_target([(1, 2), (3, 0), (0, 2), (3, 0)])
    [(3, 0), (0, 2), (1, 2)]
    """
    return sorted(set(links), key=itemgetter(1, 0))


def flipped(links: Iterable[Link]) -> set[Link]:
    """Source and target exchanged: the links of a model that translates the other way."""
    return {(target, source) for source, target in links}


def grow_diagonal(forward: Set[Link], backward: Set[Link]) -> set[Link]:
    """The links of two directions, both as (source, target), combined by grow-diag-final-and.

    From the intersection grow to neighbours in the union, diagonals included, that link a word not
    yet linked; last, add links of either direction between two words of which neither is linked
    (Koehn, Och and Marcu 2003).
    """
    links, union = set(forward & backward), forward | backward
    sources, targets = {link[0] for link in links}, {link[1] for link in links}

    def add(source: int, target: int) -> None:
        links.add((source, target))
        sources.add(source)
        targets.add(target)

    # Where only one of two links can be added, the order decides. As in the published pseudo-code,
    # links are visited by target word, then source word, and added links are visited in turn.
    places = sorted(flipped(union))
    count = -1
    while count != len(links):
        count = len(links)
        for target, source in places:
            if (source, target) not in links:
                continue
            for down, right in _NEIGHBOURS:
                near = (source + right, target + down)
                if near in union and not (near[0] in sources and near[1] in targets):
                    add(*near)
    for direction in (forward, backward):
        for target, source in sorted(flipped(direction)):
            if source not in sources and target not in targets:
                add(source, target)
    return links


def _share(hits: int, total: int) -> float:
    return hits / total if total else 1.0
