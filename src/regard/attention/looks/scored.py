"""Blocks of any weights, a few rows of all batch entries at a time."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from regard.attention.kernels.reference import scores_of, weigh
from regard.attention.kernels.request import Request
from regard.attention.looks.blocks import Block, WeightsBlock
from regard.attention.looks.entries import Stored
from regard.attention.looks.source import BlockSource, SoftmaxBlock
from regard.attention.normalisers import Hard, Softmax
from regard.attention.products import fitted, widen
from regard.attention.scores.score import PairScore, prepare_both
from regard.attention.shapes import Shape
from regard.loops.availability import transformed


class MeanBlocks(BlockSource):
    """Rows of weights averaged over the last batch axis."""

    def __init__(self, source: BlockSource, empty: Callable[..., Tensor]) -> None:
        super().__init__(source.batch[:-1], source.frame)
        self._source, self._empty = source, empty

    def blocks(self, rows: Tensor | None) -> Iterator[Block]:
        for strip in self._regions(rows):
            mean = self._empty(*self.batch, len(strip.rows), self.keys).zero_()
            for block in self._source.blocks(strip.rows):
                region = block.region
                into = mean[(*region.entries[:-1], region.at)]
                region.add(into, block.weights().sum(-3) / self._source.batch[-1])
            yield WeightsBlock(strip, mean, mean != 0)


class ScaledBlocks(BlockSource):
    """Rows of weights, each times the factor of its key, (*batch, keys)."""

    def __init__(self, source: BlockSource, factors: Tensor, normalised: bool) -> None:
        super().__init__(source.batch, source.frame)
        self._source, self._factors, self._normalised = source, factors, normalised

    def blocks(self, rows: Tensor | None) -> Iterator[Block]:
        for block in self._source.blocks(rows):
            region, weights = block.region, block.weights()
            factors = self._factors[(*region.entries, region.across)]
            yield WeightsBlock(region, scaled(weights, factors, self._normalised), weights != 0)


def scaled(weights: Tensor, factors: Tensor, normalised: bool) -> Tensor:
    """Whole rows of weights times the factors of their keys; `normalised` to a sum of 1, or 0."""
    products = weights * factors.unsqueeze(-2).to(weights.dtype)
    if not normalised:
        return products
    total = products.sum(-1, keepdim=True)
    return products / torch.where(total == 0, 1.0, total)


class ScoredBlocks(BlockSource):
    """Rows of any score, mask and normaliser: every batch entry at once, a few rows of each.

    A score or normaliser of the caller's sees all keys, as it may depend on all of them.
    """

    def __init__(self, request: Request, batch: Shape) -> None:
        super().__init__(batch, request.frame)
        self._softmax = type(request.normaliser) is Softmax
        self._request = prepared(request)
        self._cost = width(request.score)

    def blocks(self, rows: Tensor | None) -> Iterator[Block]:
        for region in self._regions(rows, self._cost):
            compute = masked_scores if self._softmax else weigh
            numbers = compute(self._request, region.rows)
            numbers = numbers.expand(*self.batch, len(region.rows), self.keys)
            if self._softmax:
                spare = None if transformed() else torch.empty_like(numbers)
                yield SoftmaxBlock(region, numbers, spare)
            elif isinstance(self._request.score, Stored):
                yield WeightsBlock(region, numbers, numbers != 0)
            else:
                yield WeightsBlock(region, numbers, self._request.readable(region.rows))


def prepared(request: Request) -> Request:
    """The same request, of which no strip of rows does again what all share.

    Finite numbers of its bias are finite over the temperature of a softmax. A hard choice compares
    the keys as they are.
    """
    if isinstance(request.normaliser, Hard):
        return request
    score, query, key = prepare_both(request.score, widen(request.query), widen(request.key))
    request = replace(request, score=score, query=query, key=key)
    if type(request.normaliser) is not Softmax:
        return request
    dtype = torch.promote_types(request.query.dtype, torch.float32)
    temperature = request.normaliser.temperature
    return request.with_bias(lambda bias: fitted(bias, dtype, temperature))


def masked_scores(request: Request, rows: Tensor | None = None) -> Tensor:
    """The scores of these queries, or of all, over the temperature, -inf where a key may not be read."""
    scores, readable, _ = scores_of(request, rows)
    if readable is not None:
        scores = torch.where(readable, scores, -torch.inf)
    return scores / cast(Softmax, request.normaliser).temperature


def width(score: object) -> int:
    """How many numbers a score holds for every pair of a query and a key."""
    return score.pair_width if isinstance(score, PairScore) else 1
