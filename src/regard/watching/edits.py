"""Edits of attention weights: what `regard.change` does to the heads of an attention.

An edit is a function of weights (*batch, heads, queries, keys) and of the numbers of those queries. It is exact: the
model reads its values with the edited weights.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import index

import torch
from jaxtyping import Float
from torch import Tensor

from regard.watching.errors import WatchError

__all__ = ["Cell", "Edit", "Hard", "Scale", "Temperature"]

Heads = int | Iterable[int] | None


@dataclass(frozen=True)
class Edit(ABC):
    """An edit of some heads; `heads` is a number, several, or None for all."""

    heads: Heads = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        # It may be an iterator, and an edit is called many times.
        if isinstance(self.heads, Iterable):
            object.__setattr__(self, "heads", tuple(map(index, self.heads)))

    @abstractmethod
    def of(
        self, weights: Float[Tensor, "*batch heads queries keys"], first: int
    ) -> Float[Tensor, "*batch heads queries keys"]:
        """The edited weights of heads that are edited; `first` is the number of the first query."""

    def __call__(self, weights: Tensor, first: int = 0) -> Tensor:
        """The weights, with the chosen heads edited.

        Raises:
            WatchError: there is no head of such a number.
        """
        if self.heads is None:
            return self.of(weights, first)
        count = weights.shape[-3]
        heads = self.heads if isinstance(self.heads, Iterable) else (self.heads,)
        numbers = torch.tensor(list(heads), dtype=torch.long)
        if len(numbers) and not (-count <= int(numbers.min()) and int(numbers.max()) < count):
            raise WatchError(f"heads is {self.heads}: this attention has heads 0 to {count - 1}")
        numbers = (numbers % count).to(weights.device)
        edited = self.of(weights.index_select(-3, numbers), first)
        return weights.index_copy(-3, numbers, edited)


@dataclass(frozen=True)
class Scale(Edit):
    """Multiply the reading of the heads by a factor; 0 switches them off.

    Example:
        >>> import torch
        >>> Scale(0.5)(torch.eye(2)[None])
        tensor([[[0.5000, 0.0000],
                 [0.0000, 0.5000]]])
    """

    factor: float

    def of(self, weights: Tensor, first: int) -> Tensor:
        return weights * self.factor


@dataclass(frozen=True)
class Temperature(Edit):
    """Weights to the power of 1 / temperature, so that rows keep their sum: below 1 sharper, above 1 flatter.

    For a softmax this is the softmax of the scores over the temperature.

    Example:
        >>> import torch
        >>> Temperature(0.5)(torch.tensor([[[0.75, 0.25]]]))
        tensor([[[0.9000, 0.1000]]])
    """

    temperature: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.temperature > 0:
            raise ValueError(f"temperature is {self.temperature}: pass a number above 0")

    def of(self, weights: Tensor, first: int) -> Tensor:
        power = weights.clamp(min=0).log().div(self.temperature).softmax(-1)
        return torch.nan_to_num(power) * weights.sum(-1, keepdim=True)


@dataclass(frozen=True)
class Hard(Edit):
    """The key with the largest weight alone, the first of equal ones.

    Example:
        >>> import torch
        >>> Hard()(torch.tensor([[[0.4, 0.6]]]))
        tensor([[[0., 1.]]])
    """

    def of(self, weights: Tensor, first: int) -> Tensor:
        if not weights.shape[-1]:
            return weights
        ones = torch.zeros_like(weights).scatter(-1, weights.argmax(-1, keepdim=True), 1.0)
        return ones * weights.sum(-1, keepdim=True)


@dataclass(frozen=True)
class Cell(Edit):
    """Set the weight of one query for one key; the other weights of the row keep their proportions and the row its sum.

    A query's number counts the queries of the attention since the change was opened, so that a cell of a translation
    that is written word by word can be set.

    Example:
        >>> import torch
        >>> Cell(query=0, key=1, weight=0.5)(torch.tensor([[[0.2, 0.0, 0.8]]]))
        tensor([[[0.1000, 0.5000, 0.4000]]])
    """

    query: int
    key: int
    weight: float

    def of(self, weights: Tensor, first: int) -> Tensor:
        row = self.query - first
        if not (0 <= row < weights.shape[-2] and 0 <= self.key < weights.shape[-1]):
            return weights
        weights_of_row = weights[..., row, :]
        is_key = torch.arange(weights.shape[-1], device=weights.device) == self.key
        other_weights = weights_of_row.masked_fill(is_key, 0.0)
        other_sum, total = other_weights.sum(-1, keepdim=True), weights_of_row.sum(-1, keepdim=True)
        spread = other_weights * (
            (total - self.weight) / other_sum.clamp(min=torch.finfo(other_sum.dtype).tiny)
        )
        edited = torch.where(is_key, torch.as_tensor(self.weight).to(weights_of_row), spread)
        row_index = torch.tensor([row], device=weights.device)
        return weights.index_copy(-2, row_index, edited.unsqueeze(-2))
