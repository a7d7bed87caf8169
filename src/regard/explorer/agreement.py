"""How well each head links words as people did.

A head links each query word to the key word with the largest weight; the weight of a word is summed over its keys and
averaged over its queries. The agreement is 1 - AER, the alignment error rate of Och and Ney 2003 ("A systematic
comparison of various statistical alignment models", section 5). Links are also read from the queries one later, which
have just read the word (Chen et al. 2020, arXiv 2004.14837).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Self

import torch
from torch import Tensor

from regard.attention.looks import Look
from regard.attention.shapes import ShapeError
from regard.translation.evaluation.alignment import Link, measure_alignment
from regard.watching.measures import BLOCK

Span = tuple[int, int]  # the tokens [start, stop) of a word


@dataclass(frozen=True)
class Links:
    """Gold links between the words of the keys and those of the queries; tokens where there are no words.

    Args:
        sure: (key, query) places, from 0.
        possible: links that are also accepted.
        keys: the first key word that can be linked, and the place after the last one; None for all.
        queries: the same of the query words.
    """

    sure: frozenset[Link]
    possible: frozenset[Link] = frozenset()
    keys: Span | None = None
    queries: Span | None = None

    @classmethod
    def of(cls, sure: Iterable[Link] | None) -> Self | None:
        """Sure links between any words; None where none are given."""
        if sure is None:
            return None
        return cls(frozenset((int(key), int(query)) for key, query in sure))

    def check(self, keys: int, queries: int) -> None:
        """Raises `ShapeError` for a link outside of so many words."""
        for key, query in sorted(self.sure | self.possible):
            if not (0 <= key < keys and 0 <= query < queries):
                raise ShapeError(
                    f"link ({key}, {query}): there are {keys} keys and {queries} queries, from 0"
                )


@torch.no_grad()
def agreement(
    look: Look, keys: Sequence[Span], queries: Sequence[Span], links: Links, later: int = 0
) -> list[float]:
    """1 - AER of the links of each head, over the blocks of rows that the look computes.

    Args:
        look: ([heads,] queries, keys).
        keys: the tokens of each word of the keys.
        queries: the tokens of each word of the queries.
        later: by how many queries the rows are shifted.
    """
    first_query, end = links.queries or (0, len(queries))
    rows = [(start + later, stop + later) for start, stop in queries[first_query:end]]
    best = _best(look, rows, keys, links.keys or (0, len(keys)))
    head_links = [
        {(key, first_query + query) for query, key in enumerate(head) if key >= 0} for head in best
    ]
    scores = [measure_alignment([each], [links.sure], [links.possible]) for each in head_links]
    return [1 - each.aer / 100 for each in scores]


def _best(look: Look, rows: Sequence[Span], keys: Sequence[Span], linked: Span) -> list[list[int]]:
    """By head, the key word with the largest weight of each query word; -1 where all are 0."""
    heads = prod(look.shape[:-2])
    owner = _owners(keys, look.shape[-1], look.device)
    longest = max((stop - start for start, stop in rows), default=1)
    together = max(1, BLOCK // max(1, heads * look.shape[-1] * longest))
    best: list[Tensor] = [torch.empty(heads, 0, dtype=torch.long)]
    for at in range(0, len(rows), together):
        block = rows[at : at + together]
        start, stop = block[0][0], block[-1][1]
        weights = look.weights(rows=range(start, stop)).reshape(heads, stop - start, look.shape[-1])
        sums = weights.new_zeros(heads, stop - start, len(keys) + 1).index_add_(-1, owner, weights)
        row_owner = _owners([(a - start, b - start) for a, b in block], stop - start, look.device)
        words = sums.new_zeros(heads, len(block) + 1, len(keys) + 1).index_add_(1, row_owner, sums)
        largest = words[:, :-1, slice(*linked)].max(-1)
        best.append(torch.where(largest.values > 0, largest.indices + linked[0], -1).cpu())
    return torch.cat(best, 1).tolist()


def _owners(spans: Sequence[Span], count: int, device: torch.device) -> Tensor:
    """The word of each of so many tokens; the number of words where it has none."""
    owners = torch.full((count,), len(spans))
    for word, (start, stop) in enumerate(spans):
        owners[start:stop] = word
    return owners.to(device)
