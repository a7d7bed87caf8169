"""The objects of a caller as strings, tensors and values."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from numbers import Number
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.attention.shapes import ShapeError


def is_text(what: Any) -> bool:
    """Whether these are strings; a list without anything in it is not."""
    return isinstance(what, str) or (
        isinstance(what, (list, tuple))
        and len(what) > 0
        and all(isinstance(one, str) for one in what)
    )


def strings(text: Any) -> list[str]:
    """One string or several as a list."""
    return [text] if isinstance(text, str) else list(text)


def numbers(what: Any) -> Tensor | None:
    """A tensor, an array, a number or lists of them as a tensor; None for any other object."""
    if isinstance(what, Tensor):
        return what
    if isinstance(what, np.ndarray | np.generic):
        return torch.tensor(np.array(what, order="C")) if what.dtype.kind in "biuf" else None
    if isinstance(what, list | tuple) and any(isinstance(one, Tensor | np.ndarray) for one in what):
        rows = [row for one in what if (row := numbers(one)) is not None]
        alike = len(rows) == len(what) and len({row.shape for row in rows}) == 1
        return torch.stack(rows) if alike else None
    sequence = isinstance(what, Sequence | Number) and not isinstance(what, str | bytes | bytearray)
    if not sequence and not hasattr(what, "__array__"):
        return None
    try:
        tensor = torch.as_tensor(what)
    except (TypeError, ValueError, RuntimeError):
        return None
    return None if tensor.is_complex() else tensor


def floats(tensor: Tensor) -> Tensor:
    """The tensor, in the default precision if it holds whole numbers."""
    return tensor if tensor.is_floating_point() else tensor.to(torch.get_default_dtype())


def is_alone(what: Any) -> bool:
    """Whether this is one string or one vector."""
    if is_text(what):
        return isinstance(what, str)
    tensor = numbers(what)
    return tensor is not None and tensor.dim() == 1


def is_array(what: Any) -> bool:
    """Whether this is a tensor or an array, which is never meant as a mere object."""
    return isinstance(what, Tensor | np.ndarray)


def as_value(what: Any) -> Tensor | None:
    """A number, or a vector or list of numbers, as a vector; None for any other object.

    Raises:
        ShapeError: If it is a tensor or an array of several vectors.
    """
    tensor = numbers(what)
    if tensor is None or not tensor.numel() or (tensor.dtype == torch.bool and not is_array(what)):
        return None
    if tensor.dim() > 1 and tensor.numel() != tensor.shape[-1]:
        if is_array(what):
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
    return f"a vector of {item.shape[-1]}" if isinstance(item, Tensor) else reprlib.repr(item)
