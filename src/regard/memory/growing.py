"""Rows in RAM that grow, and a score's work on them, which is kept."""

import numpy as np
import torch
from torch import Tensor, nn

from regard.attention.caches import GrowingTensor
from regard.attention.scores import Score, prepare
from regard.loops.availability import has_numbers


class GrowingRows(GrowingTensor):
    """Rows of a matrix. A few are appended by numpy, whose calls take a third of the time of torch's."""

    _array: np.ndarray | None = None  # the room, where numpy can write to it

    def append(self, rows: Tensor) -> None:
        """Write rows behind the last one."""
        room = self._room
        if not self.copy(rows):
            super().append(rows)
            if self._room is not room:
                self._array = _as_array(self._room)

    def copy(self, rows: Tensor) -> bool:
        """Write rows, or a vector as one, behind the last one by numpy; False where torch has to."""
        array, room, shape = self._array, self._room, rows.shape
        if array is None or len(shape) not in (1, 2) or shape[-1] != array.shape[1]:
            return False
        length = self._filled.shape[-2]
        stop = length + (1 if len(shape) == 1 else shape[0])
        if (
            stop > len(array)
            or rows.requires_grad
            or rows.dtype != room.dtype
            or not has_numbers(rows)
        ):
            return False
        array[length:stop] = rows.numpy()
        width = array.shape[1]
        self._filled = room.as_strided((stop, width), (width, 1))
        return True


class Prepared:
    """Keys after a score's work on them, for as long as neither changes."""

    def __init__(self, score: Score, key: Tensor, quick: Score, rows: GrowingTensor) -> None:
        self.quick, self.rows = quick, rows
        self._score = score
        self._follow(key)

    def _follow(self, key: Tensor) -> None:
        self._key = key
        self._versions = [each._version for each in tensors_of(self._score, key)]

    def is_of(self, score: Score, key: Tensor) -> bool:
        """Whether these are the keys for this score."""
        versions = [each._version for each in tensors_of(score, key)]
        return score is self._score and key is self._key and versions == self._versions

    def append(self, new: Tensor, old_key: Tensor, grown_key: Tensor) -> bool:
        """Prepare new keys, too; False where those before are others by now."""
        if not self.is_of(self._score, old_key):
            return False
        with torch.no_grad():
            self.rows.append(prepare(self._score, new.to(old_key))[1])
        self._follow(grown_key)
        return True


def _as_array(room: Tensor) -> np.ndarray | None:
    """The same numbers for numpy, or None where it cannot write to them."""
    if room.dim() != 2 or room.requires_grad or room.is_inference() or not has_numbers(room):
        return None
    return None if room.dtype == torch.bfloat16 else room.numpy()


def tensors_of(score: Score, key: Tensor) -> list[Tensor]:
    """The tensors that the prepared keys of a score are computed from."""
    return [key, *score.parameters()] if isinstance(score, nn.Module) else [key]
