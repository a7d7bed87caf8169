"""Where the blocks of a look come from."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from math import prod
from typing import cast

import torch
from torch import Tensor

from regard.attention.kernels.reference import scores_of, weigh
from regard.attention.kernels.request import Request
from regard.attention.looks.blocks import Block, Index, Region, SoftmaxBlock, WeightsBlock
from regard.attention.looks.entries import Stored
from regard.attention.normalisers import Hard, Softmax
from regard.attention.products import fitted, widen
from regard.attention.scores import SoftCap
from regard.attention.scores.prepare import prepare_both
from regard.attention.shapes import Shape
from regard.loops.availability import transformed

BLOCK = 1 << 20  # scores held at a time, twice: small enough for caches, enough to be quick
BLOCK_ON_DEVICE = 1 << 24


class BlockSource(ABC):
    """The rows of weights (*batch, queries, keys), a block at a time."""

    def __init__(self, batch: Shape, queries: int, keys: int, device: torch.device) -> None:
        self.batch, self.queries, self.keys, self.device = batch, queries, keys, device

    @abstractmethod
    def blocks(self, rows: Tensor | None) -> Iterator[Block]:
        """Every block of the queries at `rows`, in their order; all of them for None."""

    def _room(self) -> int:
        return BLOCK if self.device.type == "cpu" else BLOCK_ON_DEVICE

    def _regions(self, rows: Tensor | None, cost: int = 1) -> Iterator[Region]:
        """Some rows of every batch entry at a time, where a weight takes `cost` numbers."""
        height = max(1, self._room() // max(1, prod(self.batch) * self.keys * cost))
        count = self.queries if rows is None else len(rows)
        for start in range(0, count, height):
            at = slice(start, min(start + height, count))
            own = self._strip(rows, at.start, at.stop)
            yield Region((slice(None),) * len(self.batch), at, own, range(self.keys))

    def _strip(self, rows: Tensor | None, start: int, stop: int) -> Tensor:
        return torch.arange(start, stop, device=self.device) if rows is None else rows[start:stop]


class MeanBlocks(BlockSource):
    """Rows of weights averaged over the last batch axis."""

    def __init__(self, source: BlockSource, empty: Callable[..., Tensor]) -> None:
        super().__init__(source.batch[:-1], source.queries, source.keys, source.device)
        self._source, self._empty = source, empty

    def blocks(self, rows: Tensor | None) -> Iterator[Block]:
        for whole in self._regions(rows):
            mean = self._empty(*self.batch, len(whole.rows), self.keys).zero_()
            for block in self._source.blocks(whole.rows):
                region = block.region
                into = mean[(*region.entries[:-1], region.at, region.across)]
                into += block.weights().sum(-3) / self._source.batch[-1]
            yield WeightsBlock(whole, mean, mean != 0)


class ScoredBlocks(BlockSource):
    """Rows of any score, mask and normaliser: every batch entry at once, a few rows of each.

    A score or normaliser of the caller's sees all keys, as it may depend on all of them.
    """

    def __init__(self, request: Request) -> None:
        super().__init__(request.batch(), request.queries, request.keys, request.frame.device)
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
    bias, normaliser = request.bias, request.normaliser
    if bias is not None and type(normaliser) is Softmax:
        dtype = torch.promote_types(request.query.dtype, torch.float32)
        bias = fitted(bias, dtype, normaliser.temperature)
    return replace(request, score=score, query=query, key=key, bias=bias)


def masked_scores(request: Request, rows: Tensor) -> Tensor:
    """The scores of these queries over the temperature, -inf where a key may not be read."""
    scores, readable = scores_of(request, rows), request.readable(rows)
    if readable is not None:
        scores = torch.where(readable, scores, -torch.inf)
    return scores / cast(Softmax, request.normaliser).temperature


def width(score: object) -> int:
    """How many numbers a score holds for every pair of a query and a key."""
    while isinstance(score, SoftCap):
        score = score.score
    return getattr(score, "d_hidden", 1)


def partition(batch: Shape, most: int) -> list[Index]:
    """The batch entries in groups of at most `most`, or of one: a slice of each axis."""
    axis, whole = len(batch), 1
    while axis and whole * batch[axis - 1] <= most:
        axis -= 1
        whole *= batch[axis]
    steps = [1] * (axis - 1) + [max(1, most // max(1, whole))] * min(axis, 1) + list(batch[axis:])
    slices = [
        [slice(i, i + step) for i in range(0, size, step)] if step else []
        for size, step in zip(batch, steps, strict=True)
    ]
    return list(product(*slices))


def lift(tensor: Tensor, rank: int) -> Tensor:
    """The tensor with axes of size 1 in front, up to this many batch axes."""
    return tensor[(None,) * (rank + 2 - tensor.ndim)]


def cut(tensor: Tensor, entries: Index) -> Tensor:
    """These batch entries; an axis of size 1 stands for all of them, and stays."""
    return tensor[
        tuple(
            slice(None) if size == 1 else part
            for size, part in zip(tensor.shape, entries, strict=False)
        )
    ]


def sizes(batch: Shape, entries: Index) -> Shape:
    """How many batch entries of each axis are meant."""
    return tuple(len(range(size)[part]) for size, part in zip(batch, entries, strict=True))
