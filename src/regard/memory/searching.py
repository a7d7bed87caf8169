"""The best few entries of blocks of them, with their weights among all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention.kernels.ties import level_best, near_rows
from regard.attention.parts import Part
from regard.attention.ranking import top

AT_ONCE = 1 << 21  # scores that are computed together: they stay in the caches
FEWEST = 1 << 12  # entries of a block

Blocks = Iterable[tuple[int, Tensor, Tensor]]


@dataclass(frozen=True)
class Best:
    """The best entries so far, of equal ones the first ones."""

    scores: Float[Tensor, "*batch queries few"]
    positions: Int[Tensor, "*batch queries few"]
    keys: Float[Tensor, "*batch queries few width"]

    def excludes(self, scores: Tensor, k: int) -> bool:
        """Whether none of these scores is among the best; of equal ones the first count."""
        return self.scores.shape[-1] == k and bool((scores <= self.scores[..., -1]).all())

    def joined(self, later: Best, query: Tensor | None, k: int) -> Best:
        """The best of these and of later ones."""
        scores, positions = (
            torch.cat(sides, -1)
            for sides in ((self.scores, later.scores), (self.positions, later.positions))
        )
        keys = torch.cat([self.keys, later.keys], -2)
        if query is not None:
            scores = level_best(scores.unsqueeze(-2), query.unsqueeze(-2), keys).squeeze(-2)
        best, places = top(scores, k)
        rows = places.unsqueeze(-1).expand(*places.shape, keys.shape[-1])
        return Best(best, positions.gather(-1, places), keys.gather(-2, rows))


def block_rows(queries: int) -> int:
    """How many entries are compared together with so many queries."""
    return max(FEWEST, AT_ONCE // max(1, queries))


def search(query: Tensor | None, blocks: Blocks, k: int) -> tuple[Tensor, Tensor]:
    """The largest softmax weights of each query, and where they stand.

    Args:
        query: the queries, so that keys equal to the best one have its score; None leaves their rounding.
        blocks: the first position of each block in their order, its keys, and its scores.
        k: how many are wanted.
    """
    best, total = None, None
    for start, key, scores in blocks:
        share = Part.of(scores, scores.new_zeros(scores.shape[-1], 0))
        total = share if total is None else total + share
        if best is not None and best.excludes(share.maximum, k):
            continue
        highest, places = top(scores, max(k, 2))
        if query is not None:
            near = near_rows(highest, query, key[places[..., 0]])
            if near.any():
                level = level_best(scores[near], query[near], key)
                highest[near], places[near] = top(level, max(k, 2))
        highest, places = highest[..., :k], places[..., :k]
        later = Best(highest, places + start, key[places])
        best = later if best is None else best.joined(later, query, k)
    assert best is not None
    assert total is not None
    weights = torch.exp(best.scores.double() - total.log_normaliser().unsqueeze(-1))
    return weights.to(best.scores), best.positions
