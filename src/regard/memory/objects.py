"""The objects of a caller as strings, tensors and values."""

import reprlib
from collections.abc import Sequence
from numbers import Number
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.attention.shapes import ShapeError


def is_text(value: Any) -> bool:
    """Whether these are strings; a list without anything in it is not."""
    return isinstance(value, str) or (
        isinstance(value, (list, tuple))
        and len(value) > 0
        and all(isinstance(one, str) for one in value)
    )


def strings(text: Any) -> list[str]:
    """One string or several as a list."""
    return [text] if isinstance(text, str) else list(text)


def numbers(value: Any) -> Tensor | None:
    """A tensor, an array, a number or lists of them as a tensor; None for any other object."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, np.ndarray | np.generic):
        return torch.tensor(np.array(value, order="C")) if value.dtype.kind in "biuf" else None
    if isinstance(value, list | tuple) and any(
        isinstance(one, Tensor | np.ndarray) for one in value
    ):
        rows = [row for one in value if (row := numbers(one)) is not None]
        alike = len(rows) == len(value) and len({row.shape for row in rows}) == 1
        return torch.stack(rows) if alike else None
    sequence = isinstance(value, Sequence | Number) and not isinstance(
        value, str | bytes | bytearray
    )
    if not sequence and not hasattr(value, "__array__"):
        return None
    try:
        tensor = torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError):
        return None
    return None if tensor.is_complex() else tensor


def floats(tensor: Tensor) -> Tensor:
    """The tensor, in the default precision if it holds whole numbers."""
    return tensor if tensor.is_floating_point() else tensor.to(torch.get_default_dtype())


def is_alone(value: Any) -> bool:
    """Whether this is one string or one vector."""
    if is_text(value):
        return isinstance(value, str)
    tensor = numbers(value)
    return tensor is not None and tensor.dim() == 1


def is_array(value: Any) -> bool:
    """Whether this is a tensor or an array, which is never meant as a mere object."""
    return isinstance(value, Tensor | np.ndarray)


def as_value(value: Any) -> Tensor | None:
    """A number, or a vector or list of numbers, as a vector; None for any other object.

    Raises:
        ShapeError: If it is a tensor or an array of several vectors.
    """
    tensor = numbers(value)
    if tensor is None or not tensor.numel() or (tensor.dtype == torch.bool and not is_array(value)):
        return None
    if tensor.dim() > 1 and tensor.numel() != tensor.shape[-1]:
        if is_array(value):
            raise ShapeError(f"a value has shape {list(tensor.shape)}: pass one vector")
        return None
    return floats(tensor.reshape(-1))


def as_rows(name: str, vectors: Sequence[Tensor]) -> Tensor:
    """Vectors as the rows of a matrix.

    Raises:
        ShapeError: If they are not of one width.
    """
    widths = sorted({vector.shape[-1] for vector in vectors})
    if len(widths) > 1:
        raise ShapeError(f"{name} are {widths[0]} and {widths[1]} wide: pass {name} of one width")
    return torch.stack(list(vectors))


def short(item: Any) -> str:
    """An object on a line, at most some words of it."""
    is_vector = isinstance(item, Tensor) and item.dim()
    return f"a vector of {item.shape[-1]}" if is_vector else reprlib.repr(item)
