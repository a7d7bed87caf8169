"""The projected keys and values of several heads, kept between the steps of a decoder."""

from __future__ import annotations

from copy import copy
from typing import NamedTuple
from weakref import ref

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention.shapes import Shape, ShapeError
from regard.loops.availability import transformed

SMALLEST_ROOM = 16


class GrowingTensor:
    """Rows ``(*batch, length, width)`` with room to spare, so that appending is cheap.

    Where gradients flow into the rows, room cannot be reused (an earlier reading may still need
    the old contents), so appending concatenates instead.
    """

    def __init__(self, rows: Tensor) -> None:
        self._room = self._filled = rows

    @property
    def filled(self) -> Tensor:
        """The rows written so far: a view, and the same object until the next append."""
        # The rows of the caller, perhaps of heads that lie far apart.
        if self._filled is self._room:
            self._room = self._filled = self._room.contiguous()
        return self._filled

    @property
    def shape(self) -> Shape:
        """(*batch, length, width)."""
        return self._filled.shape

    def __len__(self) -> int:
        return self._filled.shape[-2]

    def __getstate__(self) -> Tensor:
        """The numbers that were written: no spare room, no history of gradients."""
        return self.filled.detach().clone(memory_format=torch.contiguous_format)

    def __setstate__(self, filled: Tensor) -> None:
        self._room = self._filled = filled

    def __copy__(self) -> GrowingTensor:
        """The same rows without the spare room: what either of the two appends, the other has not."""
        return GrowingTensor(self.filled)

    def append(self, rows: Tensor) -> None:
        """Write rows behind the last one."""
        length, steps = len(self), rows.shape[-2]
        if torch.is_grad_enabled() and (rows.requires_grad or self._room.requires_grad):
            self._room = torch.cat([self._filled, rows.to(self._room)], dim=-2)
        else:  # nothing here wants a gradient
            self._make_room(length + steps)
            # .data: rows handed out earlier do not change, so autograd need not hear of this.
            self._room.data.narrow(-2, length, steps).copy_(rows)
        self._filled = self._room.narrow(-2, 0, length + steps)

    def select(self, rows: Tensor) -> GrowingTensor:
        """These rows of the first axis, with the room that was there."""
        selection = object.__new__(GrowingTensor)
        selection._room = self._room.index_select(0, rows)
        selection._filled = selection._room.narrow(-2, 0, len(self))
        return selection

    def _make_room(self, needed: int) -> None:
        old = self._room
        # Outside of its mode, a tensor of inference mode cannot be written to.
        locked = old.is_inference() and not torch.is_inference_mode_enabled()
        if needed <= old.shape[-2] and not locked and not old.requires_grad:
            return
        capacity = max(needed, 2 * old.shape[-2], SMALLEST_ROOM)
        room = old.new_empty((*old.shape[:-2], capacity, old.shape[-1]))
        room.narrow(-2, 0, len(self)).copy_(self._filled)
        self._room = room


class Place(NamedTuple):
    """The place of a sequence in its tensor. Slices of a tensor that end with the same step have the same."""

    tensor: ref[Tensor]
    end: int
    strides: tuple[int, ...]
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, sequence: Tensor) -> Place:
        """The place of ``(*batch, length, width)``."""
        if transformed():  # there is no memory to lie in
            return cls(ref(sequence), 0, (), ())
        base = sequence if sequence._base is None else sequence._base
        strides = sequence.stride()
        end = int(sequence.storage_offset()) + sequence.shape[-2] * strides[-2]
        return cls(ref(base), end, strides, (*sequence.shape[:-2], sequence.shape[-1]))


class HeadMemory:
    """Keys and values already split into heads, growing one step or many at a time.

    `MultiHeadAttention.remember` makes them, and appends to them in place. Room is doubled when it
    runs out, so that a step copies a constant number of rows on average. ``copy.copy`` makes a second
    memory that continues by itself. A deep copy or a pickle holds the numbers alone, without the
    history of their gradients.

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

    place: Place | None = None
    """Where the tensor lies that the last steps were projected from, where `remember` wrote them."""

    def __init__(
        self,
        keys: Float[Tensor, "*batch heads length d_head"],
        values: Float[Tensor, "*batch heads length d_head_value"],
    ) -> None:
        if keys.dim() < 3 or keys.shape[:-1] != values.shape[:-1]:
            raise ShapeError(
                f"keys have shape {tuple(keys.shape)}, values {tuple(values.shape)}: "
                "pass both as [..., heads, length, width]"
            )
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

    def __repr__(self) -> str:
        shapes = f"keys {list(self.keys.shape)}, values {list(self.values.shape)}"
        return f"HeadMemory({len(self)} steps: {shapes})"

    def __copy__(self) -> HeadMemory:
        return self._of(copy(self._keys), copy(self._values))

    def __getstate__(self) -> dict[str, GrowingTensor]:
        return {"_keys": self._keys, "_values": self._values}

    @staticmethod
    def _of(keys: GrowingTensor, values: GrowingTensor) -> HeadMemory:
        memory = object.__new__(HeadMemory)
        memory._keys, memory._values = keys, values
        return memory

    def holds(self, steps: Tensor) -> bool:
        """Whether the last steps are projections of this tensor, or of a longer one that ends with it."""
        if self.place is None or steps.dim() < 2:
            return False
        place = Place.of(steps)
        return place.tensor() is self.place.tensor() and place[1:] == self.place[1:]

    def write(
        self,
        keys: Float[Tensor, "*batch heads steps d_head"],
        values: Float[Tensor, "*batch heads steps d_head_value"],
    ) -> None:
        """Append new steps, in place."""
        for name, new, old in (("key", keys, self._keys), ("value", values, self._values)):
            *front, _, width = old.shape
            expected = (*front, *keys.shape[-2:-1], width)
            if tuple(new.shape) != expected:
                raise ShapeError(
                    f"new {name}s have shape {tuple(new.shape)}: pass {name}s of shape {expected}"
                )
        self._keys.append(keys)
        self._values.append(values)
        self.place = None

    def select(self, rows: Int[Tensor, " chosen"]) -> HeadMemory:
        """A memory of these rows of the first batch axis, which may repeat: a beam's reorder."""
        if self.keys.dim() < 4:
            raise ShapeError(
                f"the keys have shape {tuple(self.keys.shape)}: there is no batch axis to select on"
            )
        return self._of(self._keys.select(rows), self._values.select(rows))
