"""The projected keys and values of several heads, kept between the steps of a decoder."""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor

from regard.attention.memory.growing import GrowingTensor
from regard.attention.shapes import ShapeError

__all__ = ["HeadMemory"]


class HeadMemory:
    """Keys and values already split into heads, growing one step or many at a time.

    `MultiHeadAttention.remember` makes them. Room is doubled when it runs out, so that a step
    copies a constant number of rows on average. A copy or a pickle of it holds the numbers alone,
    without the history of their gradients.

    Args:
        keys: One per step, for every head.
        values: As many, maybe of another width.

    Raises:
        ShapeError: If keys and values differ in more than their width.

    Example:
        >>> import torch
        >>> memory = HeadMemory(torch.zeros(5, 2, 3, 4), torch.zeros(5, 2, 3, 4))
        >>> memory.write(torch.ones(5, 2, 1, 4), torch.ones(5, 2, 1, 4))
        >>> len(memory), memory.select(torch.tensor([4, 4])).keys.shape
        (4, torch.Size([2, 2, 4, 4]))
    """

    def __init__(
        self,
        keys: Float[Tensor, "*batch heads length d_head"],
        values: Float[Tensor, "*batch heads length d_head_value"],
    ) -> None:
        _pair(keys, values)
        self._keys, self._values = GrowingTensor(keys), GrowingTensor(values)

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def keys(self) -> Float[Tensor, "*batch heads length d_head"]:
        """The keys so far: a view."""
        return self._keys.filled

    @property
    def values(self) -> Float[Tensor, "*batch heads length d_head_value"]:
        """The values so far: a view."""
        return self._values.filled

    def write(
        self,
        keys: Float[Tensor, "*batch heads steps d_head"],
        values: Float[Tensor, "*batch heads steps d_head_value"],
    ) -> None:
        """Append new steps."""
        _pair(keys, values)
        self._keys.fits(keys, "key")
        self._values.fits(values, "value")
        self._keys.append(keys)
        self._values.append(values)

    def select(self, rows: Int[Tensor, " chosen"]) -> HeadMemory:
        """A memory of these rows of the first batch axis, which may repeat: a beam's reorder."""
        if self.keys.dim() < 4:
            raise ShapeError(
                f"the keys have shape {tuple(self.keys.shape)}: there is no batch axis to select on"
            )
        chosen = object.__new__(HeadMemory)
        chosen._keys, chosen._values = self._keys.select(rows), self._values.select(rows)
        return chosen


def _pair(keys: Tensor, values: Tensor) -> None:
    if keys.dim() < 3 or keys.shape[:-1] != values.shape[:-1]:
        raise ShapeError(
            f"keys have shape {tuple(keys.shape)}, values {tuple(values.shape)}: "
            "pass both as [..., heads, length, width]"
        )
