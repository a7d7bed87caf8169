"""A block of whole rows and its statistics; every answer of a look is a fold over blocks.

A block belongs to some batch entries and some queries, and spans every key that those may read.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention import ranking

Index = tuple[slice, ...]


@dataclass(frozen=True)
class Region:
    """Where a block lies: batch entries, which of the rows asked for, their queries, its keys as runs of them.

    All of its queries read the `common` keys. Numbers of the `width` keys belong `across` those of all keys.
    """

    entries: Index
    at: slice
    rows: Tensor
    runs: Sequence[range]
    common: range
    width: int
    across: slice | Tensor

    @cached_property
    def keys(self) -> Tensor:
        """The positions of its keys."""
        if isinstance(self.across, Tensor):
            return self.across
        return torch.arange(self.across.start, self.across.stop, device=self.rows.device)

    @property
    def place(self) -> Index:
        """Where the answers for its rows belong."""
        return (*self.entries, self.at)

    def spread(self, numbers: Tensor, length: int) -> Tensor:
        """Numbers of its keys among zeros for the other keys."""
        if isinstance(self.across, slice):
            return F.pad(numbers, (self.across.start, length - self.across.stop))
        spread = numbers.new_zeros(*numbers.shape[:-1], length)
        return spread.index_copy_(-1, self.across, numbers)

    def add(self, totals: Tensor, numbers: Tensor) -> None:
        """Add numbers of its keys to those of all keys."""
        if isinstance(self.across, slice):
            totals[..., self.across].add_(numbers)
        else:
            totals.index_add_(-1, self.across, numbers)


class Block(ABC):
    """Rows of weights (*entries, rows, columns), as numerators over a divisor for each row."""

    region: Region

    @abstractmethod
    def shares(self) -> tuple[Tensor, Tensor]:
        """Numerators (*entries, rows, columns) and factors (*entries, rows): their product."""

    @abstractmethod
    def entropy(self) -> Tensor:
        """-sum_j p_j ln p_j, of shape (*entries, rows)."""

    @abstractmethod
    def top(self, count: int) -> tuple[Tensor, Tensor]:
        """The heaviest weights and their positions; 0 and -1 where there are no more."""

    def argmax(self) -> Tensor:
        """The position of the heaviest weight; -1 where there is nothing to read."""
        return self.top(1)[1].squeeze(-1)

    def weights(self) -> Tensor:
        numerators, factors = self.shares()
        return numerators.mul_(factors.unsqueeze(-1))

    def log_normaliser(self) -> Tensor:
        """ln sum_j exp(s_j), of shape (*entries, rows), where the weights are a softmax."""
        raise NotImplementedError

    def distance(self, signed: bool) -> Tensor:
        """sum_j p_ij |j - i| of row i, or sum_j p_ij (j - i)."""
        numerators, factors = self.shares()
        offsets = (self.region.keys - self.region.rows.unsqueeze(-1)).to(factors.dtype)
        return (numerators * (offsets if signed else offsets.abs())).sum(-1) * factors

    def _ranked(self, numbers: Tensor, weights: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """The weights of the highest numbers and their keys; 0 and -1 where a number is -inf."""
        values, places = ranking.top(numbers, count)
        missing, none = (0, count - values.shape[-1]), values == -torch.inf
        heaviest = weights.gather(-1, places).masked_fill(none, 0.0)
        runs = self.region.runs
        keys = places + runs[0].start if len(runs) == 1 else self.region.keys[places]
        keys = keys.masked_fill(none, -1)
        return F.pad(heaviest, missing), F.pad(keys, missing, value=-1)


class WeightsBlock(Block):
    """Rows of weights, and which of them may be read; None for all."""

    def __init__(self, region: Region, weights: Tensor, readable: Tensor | None = None) -> None:
        self.region, self._weights, self._readable = region, weights, readable

    def shares(self) -> tuple[Tensor, Tensor]:
        return self._weights, self._weights.new_ones(self._weights.shape[:-1])

    def weights(self) -> Tensor:
        return self._weights

    def entropy(self) -> Tensor:
        return entropy_of(self._weights)

    def top(self, count: int) -> tuple[Tensor, Tensor]:
        weights = self._weights
        if self._readable is not None:
            weights = torch.where(self._readable, weights, -torch.inf)
        return self._ranked(weights, weights, count)


def entropy_of(weights: Tensor) -> Tensor:
    """-sum_j p_j ln p_j with 0 ln 0 = 0, and the gradient there 0 too; nan below 0."""
    return -(weights * torch.where(weights == 0, 1.0, weights).log()).sum(-1)


def log_normaliser_of(scores: Tensor) -> Tensor:
    """ln sum_j exp(s_j); of a row with nothing to read -inf, and its gradient 0."""
    nothing = (scores == -torch.inf).all(-1, keepdim=True)
    scores = torch.where(nothing, 0.0, scores)
    # The gradient is a softmax; that of torch.logsumexp is e^(s - ln Z), which is wrong where
    # ln Z is so large that it is rounded.
    shift = scores.logsumexp(-1, keepdim=True).detach().clamp(max=torch.finfo(scores.dtype).max)
    logs = shift + (scores - shift).exp().sum(-1, keepdim=True).log()
    return torch.where(nothing, -torch.inf, logs).squeeze(-1)
