"""Where the blocks of a look come from: softmaxes of our scores, only between keys that are read.

A block is used once: its numbers are overwritten, so that a look allocates only two buffers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from regard.attention.kernels.additive.kernels import Cpu
from regard.attention.kernels.additive.requests import joint_spans
from regard.attention.kernels.request import Request
from regard.attention.looks.blocks import Block, Index, Region
from regard.attention.masks.layout import positions_of, reads_of
from regard.attention.masks.mask import Given, pick
from regard.attention.normalisers import Softmax
from regard.attention.products import divided, dots, widen
from regard.attention.scores import DotLike
from regard.attention.shapes import Frame, Shape
from regard.loops.availability import serve

if TYPE_CHECKING:
    from regard.attention.kernels.additive.cpu.looks import PairScores

BLOCK = 1 << 20  # scores held at a time, twice: small enough for caches, enough to be quick
BLOCK_ON_DEVICE = 1 << 24
FAR = -1e4  # exp of it is 0 in every dtype, and so is 0 times it
LEAST = 32  # rows of a block: with fewer, a product spends its time on fetching keys


class BlockSource(ABC):
    """The rows of weights (*batch, queries, keys), a block at a time."""

    def __init__(self, batch: Shape, frame: Frame) -> None:
        self.batch, self.frame = batch, frame
        self.queries, self.keys, self.device = frame.queries, frame.keys, frame.device

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
            yield self._region(rows, start, min(start + height, count))

    def _region(self, rows: Tensor | None, start: int, stop: int) -> Region:
        """Some rows of all batch entries, with the keys that they read."""
        strip = self._rows_between(rows, start, stop)
        runs, common = self._reads(strip)
        width = sum(map(len, runs))
        begin, end = (runs[0].start, runs[-1].stop) if runs else (0, 0)
        across = slice(begin, end) if width == end - begin else positions_of(runs, self.device)
        entries = (slice(None),) * len(self.batch)
        return Region(entries, slice(start, stop), strip, runs, common, width, across)

    def _rows_between(self, rows: Tensor | None, start: int, stop: int) -> Tensor:
        return torch.arange(start, stop, device=self.device) if rows is None else rows[start:stop]

    def _reads(self, rows: Tensor) -> tuple[Sequence[range], range]:
        """The keys that some of these rows read, and those that all of them read."""
        return [range(self.keys)], range(self.keys)


class SoftmaxBlocks(BlockSource):
    """Rows of softmax(score / T + bias / T) under any mask, for scores of any entries, rows and keys alone.

    Args:
        request: its mask and bias; a subclass has the scores.
        batch: the batch axes of the weights.
        dtype: of the scores.
    """

    def __init__(self, request: Request, batch: Shape, dtype: torch.dtype) -> None:
        super().__init__(batch, request.frame)
        mask, temperature = request.mask, cast(Softmax, request.normaliser).temperature
        self._request, self._dtype = request, dtype
        self._mask = Given(mask) if isinstance(mask, Tensor) else mask
        self._temperature = temperature
        self._bias: tuple[Tensor, bool] | None = None
        self._planes = 1  # of a bias function, which is called once for all batch entries
        if request.bias is not None:
            self._bias = self._divided(request.bias)
        elif request.bias_function is not None:
            self._planes = prod(request.corner().shape[:-2])

    @abstractmethod
    def _write(self, scores: Tensor, region: Region, in_order: bool) -> None:
        """Fill the scores of a region over T; `in_order` says that its rows follow one another."""

    def blocks(self, rows: Tensor | None) -> Iterator[Block]:
        room, buffers = self._room(), _Buffers(self._dtype, self.device)
        for strip in self._strips(rows):
            masked, bias, width = list(self._masked(strip)), self._bias_of(strip), strip.width
            for entries in partition(self.batch, max(1, room // max(1, len(strip.rows) * width))):
                region = replace(strip, entries=entries)
                scores, spare = buffers.of((*sizes(self.batch, entries), len(strip.rows), width))
                if scores.numel():
                    self._write(scores, region, rows is None)
                if bias is not None:
                    numbers = cut(bias[0], entries)
                    scores += numbers
                    if bias[1]:  # a key that holds NaN is masked as well
                        scores.masked_fill_(numbers == -torch.inf, -torch.inf)
                for columns, closed in masked:
                    scores[..., columns].masked_fill_(cut(closed, entries), -torch.inf)
                finite = not masked and bias is None
                yield SoftmaxBlock(region, scores, spare, finite=finite)

    def _strips(self, rows: Tensor | None) -> Iterator[Region]:
        """Strips of rows that fill a block with the keys they read: more rows where these are few.

        Not more than keys, though: the longer a strip along a diagonal, the more of it is masked.
        """
        start, count = 0, self.queries if rows is None else len(rows)
        room = self._room() // self._planes
        while start < count:
            stop = min(start + LEAST, count)
            if stop < count:
                runs, _ = self._reads(self._rows_between(rows, start, stop))
                width = sum(map(len, runs))
                height = min(room // max(1, width), max(128, width))
                stop = min(start + max(LEAST, height // LEAST * LEAST), count)
            yield self._region(rows, start, stop)
            start = stop

    def _reads(self, rows: Tensor) -> tuple[Sequence[range], range]:
        if self._mask is None:
            return super()._reads(rows)
        return reads_of(self._mask, range(int(rows.min()), int(rows.max()) + 1), self.frame)

    def _masked(self, strip: Region) -> Iterator[tuple[slice, Tensor]]:
        """Columns of the block, and which of them which rows may not read, where some may."""
        if self._mask is None:
            return
        place = 0
        for run in strip.runs:
            edges = (
                range(run.start, min(run.stop, strip.common.start)),
                range(max(run.start, strip.common.stop), run.stop),
            )
            for edge in edges:
                if edge:
                    columns = torch.arange(edge.start, edge.stop, device=self.device)
                    window = self._mask.window(strip.rows, columns, self.frame)
                    at = place + edge.start - run.start
                    yield slice(at, at + len(edge)), ~lift(window, len(self.batch))
            place += len(run)

    def _bias_of(self, strip: Region) -> tuple[Tensor, bool] | None:
        """The bias of a strip over the temperature, and whether any of it is -inf."""
        if self._bias is not None:
            bias, shuts = self._bias
            bias = pick(bias, -2, strip.rows)
            return bias if bias.shape[-1] == 1 else bias[..., strip.across], shuts
        if self._request.bias_function is None or not strip.width:
            return None
        return self._divided(self._request.bias_between(strip.rows, strip.keys))

    def _divided(self, bias: Tensor) -> tuple[Tensor, bool]:
        numbers = lift(divided(bias, self._dtype, self._temperature), len(self.batch))
        return numbers, bool((bias == -torch.inf).any())


class SoftmaxBlock(Block):
    """Rows of scores, of which the weights are the softmax.

    p_j = e_j / z with e_j = exp(s_j - m) and z = sum_j e_j; m is the row's maximum.
    ln Z = m + ln z; the entropy is ln z - sum_j p_j (s_j - m).

    Args:
        region: where it lies.
        scores: -inf where a key may not be read.
        spare: a tensor of the same shape to write in; None where nothing can be written to.
        finite: whether every score is.
    """

    def __init__(
        self, region: Region, scores: Tensor, spare: Tensor | None, *, finite: bool = False
    ) -> None:
        self.region, self._scores, self._spare = region, scores, spare
        self._finite = finite

    def _exponentials(self, out: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """e, m and z; the scores become s - m."""
        scores = self._scores
        if scores.shape[-1]:
            maximum = scores.amax(-1)
            if not self._finite:
                maximum = torch.where(maximum.isinf(), 0.0, maximum)
        else:
            maximum = scores.new_zeros(scores.shape[:-1])
        exponentials = torch.exp(scores.sub_(maximum.unsqueeze(-1)), out=out)
        return exponentials, maximum, exponentials.sum(-1)

    def shares(self) -> tuple[Tensor, Tensor]:
        exponentials, _, total = self._exponentials(None if self._spare is None else self._scores)
        return exponentials, _inverse(total)

    def log_normaliser(self) -> Tensor:
        _, maximum, total = self._exponentials(self._scores)
        return maximum + total.log()

    def entropy(self) -> Tensor:
        exponentials, _, total = self._exponentials(self._spare)
        centred = self._scores if self._finite else self._scores.clamp_(min=FAR)
        mean = centred.mul_(exponentials).sum(-1) * _inverse(total)
        return torch.where(total == 0, 0.0, total.log() - mean).clamp_(min=0.0)

    def top(self, count: int) -> tuple[Tensor, Tensor]:
        weights = torch.softmax(self._scores, -1, out=self._spare)
        return self._ranked(self._scores, weights, count)

    def argmax(self) -> Tensor:
        return self._ranked(self._scores, self._scores, 1)[1].squeeze(-1)


class ProductBlocks(SoftmaxBlocks):
    """Rows of softmax(scale f(q) . g(k) + bias)."""

    def __init__(self, request: Request, batch: Shape) -> None:
        score = cast(DotLike, request.score)
        query, key, scale = score.factors(widen(request.query), widen(request.key))
        dtype = torch.promote_types(query.dtype, key.dtype)
        super().__init__(request, batch, dtype)
        self._scale = scale / cast(Softmax, request.normaliser).temperature
        rank = len(self.batch)
        self._query, self._key = lift(query.to(dtype), rank), lift(key.to(dtype), rank)

    def _write(self, scores: Tensor, region: Region, in_order: bool) -> None:
        query, key = cut(self._query, region.entries), cut(self._key, region.entries)
        query = query[..., region.at, :] if in_order else query.index_select(-2, region.rows)
        key = key[..., region.across, :]
        batch = scores.shape[:-2]
        if query.shape[:-2] == key.shape[:-2] == batch:
            _product(query, key, self._scale, scores)
        else:
            scores.copy_(dots(query * self._scale, key))


class AdditiveBlocks(SoftmaxBlocks):
    """Rows of softmax(cap(w . tanh(a + c)) + bias), scored by the loops of the kernel `cpu`."""

    def __init__(self, request: Request, batch: Shape) -> None:
        self._score, self._cap = request.score.capped()  # type: ignore[attr-defined]
        joint = torch.promote_types(request.query.dtype, request.key.dtype)
        dtype = torch.promote_types(joint, torch.float32)
        super().__init__(request, batch, dtype)
        # Half precisions are computed in float32, and under autocast the rest is.
        self._features = self._score.query_features(widen(request.query)).to(dtype)
        self._key = self._score.key_features(widen(request.key)).to(dtype)
        self._spans = joint_spans(request.mask, request.frame)

    def blocks(self, rows: Tensor | None) -> Iterator[Block]:
        from regard.attention.kernels.additive.cpu.looks import PairScores

        features, spans = self._features, self._spans
        if rows is not None:
            features = features.index_select(-2, rows)
            spans = spans and (pick(spans[0], -1, rows), pick(spans[1], -1, rows))
        temperature = cast(Softmax, self._request.normaliser).temperature
        weight = self._score.weight.to(self._dtype)
        self._pairs: PairScores = PairScores(
            features, self._key, weight, spans, self.batch, self._cap, temperature
        )
        yield from super().blocks(rows)

    def _write(self, scores: Tensor, region: Region, in_order: bool) -> None:
        self._pairs.write(scores, region.entries, region.at, region.runs)


def is_additive(request: Request) -> bool:
    """Whether the loops for additive scores serve a look at this request, and are faster."""
    if not serve(request.query, request.key):
        return False
    undropped = replace(request, dropout=0.0)
    return Cpu().is_chosen(undropped, request.key)


def _inverse(total: Tensor) -> Tensor:
    """1 / z; 0 for a row with nothing to read."""
    return torch.where(total == 0, 0.0, total.reciprocal())


class _Buffers:
    """Two stretches of memory that every block is written to in turn."""

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self._scores = self._spare = torch.empty(0, dtype=dtype, device=device)

    def of(self, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        size = prod(shape)
        if self._scores.numel() < size:
            self._scores, self._spare = self._scores.new_empty(size), self._scores.new_empty(size)
        return self._scores[:size].view(shape), self._spare[:size].view(shape)


def _product(query: Tensor, key: Tensor, scale: float, out: Tensor) -> None:
    count = prod(out.shape[:-2])
    flat = out.view(count, *out.shape[-2:])
    query, key = (vectors.reshape(count, *vectors.shape[-2:]) for vectors in (query, key))
    if flat.shape[0] == 1:
        torch.addmm(flat[0], query[0], key[0].mT, beta=0, alpha=scale, out=flat[0])
    else:
        torch.baddbmm(flat, query, key.mT, beta=0, alpha=scale, out=flat)


def partition(batch: Shape, limit: int) -> list[Index]:
    """The batch entries in groups of at most `limit`, or of one: a slice of each axis."""
    axis, entries = len(batch), 1
    while axis and entries * batch[axis - 1] <= limit:
        axis -= 1
        entries *= batch[axis]
    steps = (
        [1] * (axis - 1) + [max(1, limit // max(1, entries))] * min(axis, 1) + list(batch[axis:])
    )
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
            slice(None) if size == 1 else entry
            for size, entry in zip(tensor.shape, entries, strict=False)
        )
    ]


def sizes(batch: Shape, entries: Index) -> Shape:
    """How many batch entries of each axis are meant."""
    return tuple(len(range(size)[entry]) for size, entry in zip(batch, entries, strict=True))
