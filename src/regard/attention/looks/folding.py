"""A pass of a look over its weights, block by block; the normalisers found are kept."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from math import prod

import torch
from torch import Tensor

from regard.attention.looks import learned
from regard.attention.looks.blocks import Block, Index
from regard.attention.looks.source import BlockSource, Known
from regard.attention.shapes import Shape
from regard.loops.availability import transformed

BLOCK = 1 << 20  # scores that a backward pass holds at a time
Progress = Callable[[int, int], None]


class Fold(ABC):
    """Weights (*batch, queries, keys) that are never held at once, and how an answer is made of them."""

    _known: tuple[object, Known] | None = None

    @property
    @abstractmethod
    def shape(self) -> Shape:
        """(*batch, queries, keys)."""

    @property
    @abstractmethod
    def device(self) -> torch.device: ...

    @abstractmethod
    def _source(self) -> BlockSource:
        """Where the blocks come from."""

    @abstractmethod
    def _rows(self, rows: Tensor | None) -> Tensor:
        """The weights of these queries over every key; it broadcasts to (*batch, rows, keys)."""

    @abstractmethod
    def _scores(self, rows: Tensor) -> Tensor:
        """The scores over the temperature of these queries, -inf where they may not read."""

    @abstractmethod
    def _readable(self, rows: Tensor, columns: Tensor) -> Tensor | None:
        """Which of these keys each of these queries may read; None where nothing forbids any."""

    @abstractmethod
    def _temperature(self) -> float:
        """The softmax's; a TypeError where the weights are no softmax of scores."""

    @abstractmethod
    def _cost(self) -> int:
        """How many numbers a pair of a query and a key takes to score."""

    @abstractmethod
    def _dtype(self) -> torch.dtype: ...

    @abstractmethod
    def _leaves(self) -> list[Tensor] | None:
        """The tensors that the weights depend on; None where that cannot be told."""

    @abstractmethod
    def _learner(self) -> Fold:
        """The same look, for answers with gradients: no strip of it does again what all share."""

    @abstractmethod
    def _finite(self) -> Fold:
        """The same look; keys and queries without weight do not spoil its gradients."""

    @abstractmethod
    def _learns(self) -> bool:
        """Whether a gradient is wanted of the weights."""

    @abstractmethod
    def _stamp(self) -> object:
        """The present state of all inputs of the row normalisers; None where it is unknown."""

    @torch.no_grad()
    def _each(self, answer: Callable[[Block], Tensor], progress: Progress | None) -> Tensor:
        answers = self._empty(*self.shape[:-1])
        for block in self._blocks(None, progress):
            answers[(*block.region.entries, block.region.at)] = answer(block)
        return answers

    def _blocks(self, rows: Tensor | None, progress: Progress | None) -> Iterator[Block]:
        """The blocks, whose normalisers are kept when all rows have gone by, and used again."""
        stamp = self._stamp()
        known = self._remembered(stamp)
        keep = rows is None and known is None and bool(stamp)
        found = (self._empty(*self.shape[:-1]), self._empty(*self.shape[:-1])) if keep else None
        done, total = 0, self._rows_asked(rows)
        for block in self._source().blocks(rows, known):
            yield block
            region = block.region
            if found and block.maximum is not None and block.total is not None:
                at = (*region.entries, region.at)
                found[0][at], found[1][at] = block.maximum, block.total
            else:
                found = None
            if progress:
                done += prod(_sizes(self.shape[:-2], region.entries)) * len(region.rows)
                progress(done, total)
        if found:
            self._known = (stamp, found)

    def _remembered(self, stamp: object) -> Known | None:
        """The row normalisers, where an answer before has found them and they still hold."""
        return self._known[1] if stamp and self._known and self._known[0] == stamp else None

    def _rows_asked(self, rows: Tensor | None) -> int:
        return prod(self.shape[:-2]) * (self.shape[-2] if rows is None else len(rows))

    def _learned(
        self,
        part: learned.Part,
        whole: Callable[[], Tensor],
        progress: Progress | None,
        rows: Tensor | None = None,
        weights: Tensor | None = None,
        summed: bool = False,
    ) -> Tensor:
        """An answer with its gradient, for these rows and their weights."""

        def strips() -> Iterator[tuple[slice, Tensor]]:
            own = torch.arange(self.shape[-2], device=self.device) if rows is None else rows
            pairs = prod(self.shape[:-2]) * self.shape[-1] * self._cost()
            start = 0
            for strip in own.split(max(1, BLOCK // max(1, pairs))):
                yield slice(start, start + len(strip)), strip
                start += len(strip)

        def told(at: slice) -> None:
            if progress:
                progress(prod(self.shape[:-2]) * at.stop, self._rows_asked(rows))

        leaves = self._leaves()
        if leaves is not None and weights is not None:
            leaves = learned.unique([*leaves, weights])
        return learned.answer(learned.Answer(whole, part, strips, summed, told), leaves)

    def _empty(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        dtype = self._dtype() if dtype is None else dtype
        if transformed():  # a buffer must have the axes that a transform hides
            return self._rows(torch.arange(0, device=self.device)).new_empty(shape, dtype=dtype)
        return torch.empty(shape, dtype=dtype, device=self.device)

    def _follows(self) -> bool:
        """Whether an answer is made of operations that can be differentiated and mapped."""
        return transformed() or self._learns()

    def _spread(self, rows: Tensor) -> Tensor:
        """The weights of these queries, of the look's own shape."""
        return self._rows(rows).expand(*self.shape[:-2], len(rows), self.shape[-1])


def _sizes(batch: Shape, entries: Index) -> Shape:
    """How many batch entries of each axis are meant."""
    return tuple(len(range(size)[part]) for size, part in zip(batch, entries, strict=True))
