"""A look over stored weights."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.looks.entries import Entry
from regard.attention.looks.look import Look
from regard.attention.looks.source import BlockSource, StoredBlocks
from regard.attention.shapes import Shape, check_rank


class StoredLook(Look):
    """A look over weights that were computed before, such as those of a decoder step by step.

    A key of weight 0 counts as a key that may not be read.

    Args:
        weights: (*batch, queries, keys).

    Example:
        >>> import torch
        >>> StoredLook(torch.eye(3)).weights(rows=[2])
        tensor([[0., 0., 1.]])
    """

    def __init__(self, weights: Float[Tensor, "*batch queries keys"]) -> None:
        check_rank("weights", weights.shape)
        self._weights = weights

    @property
    def shape(self) -> Shape:
        return tuple(self._weights.shape)

    @property
    def device(self) -> torch.device:
        return self._weights.device

    def _at(self, entries: tuple[Entry, ...]) -> StoredLook:
        return StoredLook(self._weights[entries])

    def _merged(self) -> StoredLook:
        return StoredLook(self._weights.flatten(-4, -3))

    def _rows(self, rows: Tensor | None) -> Tensor:
        return self._weights if rows is None else self._weights.index_select(-2, rows)

    def _readable(self, rows: Tensor, columns: Tensor) -> Tensor | None:
        return None  # a weight of 0 does not tell

    def _scores(self, rows: Tensor) -> Tensor:
        raise NotImplementedError

    def _temperature(self) -> float:
        raise TypeError("stored weights do not tell their log-normaliser: look at the scores")

    def _source(self) -> BlockSource:
        return StoredBlocks(self._weights)

    def _cost(self) -> int:
        return 1

    def _dtype(self) -> torch.dtype:
        return torch.promote_types(self._weights.dtype, torch.float32)

    def _leaves(self) -> list[Tensor] | None:
        return [self._weights]

    def _learner(self) -> StoredLook:
        return self

    def _finite(self) -> StoredLook:
        return self

    def _learns(self) -> bool:
        return torch.is_grad_enabled() and self._weights.requires_grad

    def _stamp(self) -> object:
        return None
