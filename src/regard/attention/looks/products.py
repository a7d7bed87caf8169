"""Blocks of the softmax of dot products: the product into a buffer, and no key that none reads."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import cast

import torch
from torch import Tensor

from regard.attention.kernels.request import Request
from regard.attention.looks.blocks import Block, Region, SoftmaxBlock
from regard.attention.looks.source import BlockSource, cut, lift, partition, sizes
from regard.attention.masks.mask import Given, Reach, pick
from regard.attention.normalisers import Softmax
from regard.attention.products import divided, dots, widen
from regard.attention.scores import DotLike

LEAST = 32  # rows of a block: with fewer, a product spends its time on fetching keys


class ProductBlocks(BlockSource):
    """Rows of softmax(scale f(q) . g(k) + bias) under any mask."""

    def __init__(self, request: Request) -> None:
        super().__init__(request.batch(), request.queries, request.keys, request.frame.device)
        score, normaliser = cast(DotLike, request.score), cast(Softmax, request.normaliser)
        query, key, scale = score.factors(widen(request.query), widen(request.key))
        self._request, self._scale = request, scale / normaliser.temperature
        mask, rank = request.mask, len(self.batch)
        self._mask = Given(mask) if isinstance(mask, Tensor) else mask
        dtype = torch.promote_types(query.dtype, key.dtype)
        self._query, self._key = lift(query.to(dtype), rank), lift(key.to(dtype), rank)
        self._bias, self._shuts = None, False
        if request.bias is not None:
            self._bias = lift(divided(request.bias, dtype, normaliser.temperature), rank)
            self._shuts = bool((request.bias == -torch.inf).any())

    def blocks(self, rows: Tensor | None) -> Iterator[Block]:
        room, buffers = self._room(), _Buffers(self._query)
        for at, strip, reach in self._reaching(rows):
            shut = list(self._shut(strip, reach))
            groups = partition(self.batch, max(1, room // max(1, len(strip) * len(reach.some))))
            for entries in groups:
                region = Region(entries, at, strip, reach.some)
                scores, spare = self._scores(region, rows is None, buffers)
                for columns, closed in shut:
                    scores[..., columns].masked_fill_(cut(closed, entries), -torch.inf)
                yield SoftmaxBlock(region, scores, spare, finite=not shut and self._bias is None)

    def _reaching(self, rows: Tensor | None) -> Iterator[tuple[slice, Tensor, Reach]]:
        """Strips of rows that fill a block with the keys they reach: more rows where these are few.

        Not more than keys, though: the longer a strip along a diagonal, the more of it is shut.
        """
        start, asked = 0, self.queries if rows is None else len(rows)
        while start < asked:
            stop = min(start + LEAST, asked)
            reached = len(self._reach(self._strip(rows, start, stop)).some)
            height = min(self._room() // max(1, reached), max(128, reached))
            stop = min(start + max(LEAST, height // LEAST * LEAST), asked)
            strip = self._strip(rows, start, stop)
            yield slice(start, stop), strip, self._reach(strip)
            start = stop

    def _reach(self, strip: Tensor) -> Reach:
        if self._mask is None:
            return Reach(range(self.keys), range(self.keys))
        return self._mask.reach(range(int(strip.min()), int(strip.max()) + 1), self._request.frame)

    def _shut(self, strip: Tensor, reach: Reach) -> Iterator[tuple[slice, Tensor]]:
        """Columns of the block, and which of them which rows may not read, where some may."""
        some, every = reach
        if not every:
            every = range(some.stop, some.stop)
        for part in (range(some.start, every.start), range(every.stop, some.stop)):
            if part and self._mask is not None:
                columns = torch.arange(part.start, part.stop, device=self.device)
                window = self._mask.window(strip, columns, self._request.frame)
                closed = ~lift(window, len(self.batch))
                yield slice(part.start - some.start, part.stop - some.start), closed

    def _scores(self, region: Region, together: bool, buffers: _Buffers) -> tuple[Tensor, Tensor]:
        """scale q . k + bias of a block, in the first buffer, and the second."""
        query, key = cut(self._query, region.entries), cut(self._key, region.entries)
        query = query[..., region.at, :] if together else query.index_select(-2, region.rows)
        key = key[..., region.across, :]
        batch = sizes(self.batch, region.entries)
        shape = (*batch, query.shape[-2], key.shape[-2])
        scores, spare = buffers.of(shape)
        if query.shape[:-2] == key.shape[:-2] == batch:
            _product(query, key, self._scale, scores)
        else:
            scores.copy_(dots(query * self._scale, key))
        if self._bias is not None:
            bias = pick(cut(self._bias, region.entries), -2, region.rows)
            bias = bias if bias.shape[-1] == 1 else bias[..., region.across]
            scores += bias
            if self._shuts:  # a key that holds NaN is shut as well
                scores.masked_fill_(bias == -torch.inf, -torch.inf)
        return scores, spare


class _Buffers:
    """Two stretches of memory that every block is written to in turn."""

    def __init__(self, like: Tensor) -> None:
        self._like = like
        self._pair = (like.new_empty(0), like.new_empty(0))

    def of(self, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        size = prod(shape)
        if self._pair[0].numel() < size:
            self._pair = (self._like.new_empty(size), self._like.new_empty(size))
        one, two = self._pair
        return one[:size].view(shape), two[:size].view(shape)


def _product(query: Tensor, key: Tensor, scale: float, out: Tensor) -> None:
    count = prod(out.shape[:-2])
    flat = out.view(count, *out.shape[-2:])
    query, key = (each.reshape(count, *each.shape[-2:]) for each in (query, key))
    if flat.shape[0] == 1:
        torch.addmm(flat[0], query[0], key[0].mT, beta=0, alpha=scale, out=flat[0])
    else:
        torch.baddbmm(flat, query, key.mT, beta=0, alpha=scale, out=flat)
