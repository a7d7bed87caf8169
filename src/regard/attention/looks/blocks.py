"""A block of whole rows and its statistics; every answer of a look is a fold over blocks.

A block belongs to some batch entries and some queries, and spans every key that those may read.
It is used once: its numbers are overwritten, so that a look allocates only two buffers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.attention.looks.ranking import first

Index = tuple[slice, ...]

FAR = -1e4  # exp of it is 0 in every dtype, and so is 0 times it


@dataclass(frozen=True)
class Region:
    """Where a block lies: batch entries, which of the rows asked for, their queries, its keys."""

    entries: Index
    at: slice
    rows: Tensor
    columns: range

    @property
    def across(self) -> slice:
        return slice(self.columns.start, self.columns.stop)


class Block(ABC):
    """Rows of weights (*entries, rows, columns), as numerators over a divisor for each row."""

    region: Region
    maximum: Tensor | None = None
    total: Tensor | None = None

    @abstractmethod
    def shares(self) -> tuple[Tensor, Tensor]:
        """Numerators (*entries, rows, columns) and factors (*entries, rows): their product."""

    @abstractmethod
    def entropy(self) -> Tensor:
        """-sum_j p_j ln p_j, of shape (*entries, rows)."""

    @abstractmethod
    def top(self, count: int) -> tuple[Tensor, Tensor]:
        """The heaviest weights and their positions; 0 and -1 where there are no more."""

    @abstractmethod
    def argmax(self) -> Tensor:
        """The position of the heaviest weight; -1 where there is nothing to read."""

    def weights(self) -> Tensor:
        numerators, factors = self.shares()
        return numerators.mul_(factors.unsqueeze(-1))

    def log_normaliser(self) -> Tensor:
        """ln sum_j exp(s_j), of shape (*entries, rows), where the weights are a softmax."""
        raise NotImplementedError

    def _positions(self, found: Tensor, values: Tensor) -> Tensor:
        return torch.where(values == -torch.inf, -1, found + self.region.columns.start)


class SoftmaxBlock(Block):
    """Rows of scores, of which the weights are the softmax.

    p_j = e_j / z with e_j = exp(s_j - m) and z = sum_j e_j; m is the row's maximum, or 0 where
    the scores are known to be small. ln Z = m + ln z; the entropy is ln z - sum_j p_j (s_j - m).

    Args:
        region: where it lies.
        scores: -inf where a key may not be read.
        spare: a tensor of the same shape to write in; None where nothing can be written to.
        known: the m and z of its rows, where an answer before has found them.
        small: whether exp(s_j) can neither overflow nor lose precision.
        finite: whether every score is.
    """

    def __init__(
        self,
        region: Region,
        scores: Tensor,
        spare: Tensor | None,
        known: tuple[Tensor, Tensor] | None = None,
        *,
        small: bool = False,
        finite: bool = False,
    ) -> None:
        self.region, self._scores, self._spare = region, scores, spare
        self._small, self._finite = small, finite
        self.maximum, self.total = known or (None, None)

    def _centred(self) -> tuple[Tensor, Tensor]:
        """s - m in region of the scores, and m."""
        scores, maximum = self._scores, self.maximum
        if self._small or not scores.shape[-1]:
            maximum = scores.new_zeros(scores.shape[:-1])
        else:
            if maximum is None:
                maximum = scores.amax(-1)
                if not self._finite:
                    maximum = torch.where(maximum.isinf(), 0.0, maximum)
            scores.sub_(maximum.unsqueeze(-1))
        self.maximum = maximum
        return scores, maximum

    def _exponentials(self, out: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """e, m and z."""
        centred, maximum = self._centred()
        exponentials = torch.exp(centred, out=out)
        total = exponentials.sum(-1) if self.total is None else self.total
        self.total = total
        return exponentials, maximum, total

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
        if self.total is None:
            total = self._exponentials(self._spare)[2]
        else:
            total = self.total
            self._centred()
        values, found = first(self._scores, count)
        return values.exp() * _inverse(total).unsqueeze(-1), self._positions(found, values)

    def argmax(self) -> Tensor:
        values, found = first(self._scores, 1)
        return self._positions(found, values).squeeze(-1)


def _inverse(total: Tensor) -> Tensor:
    """1 / z; 0 for a row with nothing to read."""
    return torch.where(total == 0, 0.0, total.reciprocal())


class WeightsBlock(Block):
    """Rows of stored weights, and which of them may be read; None for all."""

    def __init__(self, region: Region, weights: Tensor, readable: Tensor | None = None) -> None:
        self.region, self._weights, self._readable = region, weights, readable

    def shares(self) -> tuple[Tensor, Tensor]:
        return self._weights, self._weights.new_ones(self._weights.shape[:-1])

    def entropy(self) -> Tensor:
        return entropy_of(self._weights)

    def top(self, count: int) -> tuple[Tensor, Tensor]:
        weights = self._weights
        if self._readable is not None:
            weights = torch.where(self._readable, weights, -torch.inf)
        values, found = first(weights, count)
        return values.masked_fill(values == -torch.inf, 0.0), self._positions(found, values)

    def argmax(self) -> Tensor:
        return self.top(1)[1].squeeze(-1)


def entropy_of(weights: Tensor) -> Tensor:
    """-sum_j p_j ln p_j with 0 ln 0 = 0, and the gradient there 0 too; nan below 0."""
    return -(weights * torch.where(weights == 0, 1.0, weights).log()).sum(-1)
