"""The glossary of axes, and the errors about them.

Every tensor is laid out (*batch, queries or keys, width). Heads are one more batch axis.
A boolean mask says what may be read: True = may be read. It is never the other way round.
"""

from typing import NamedTuple

import torch

Shape = tuple[int, ...]


class ShapeError(ValueError):
    """Tensors whose axes do not fit one another; the message says which, and what to pass."""


class Frame(NamedTuple):
    """The scores that a mask is laid over: batch axes of the query and key, and two lengths."""

    batch: Shape
    queries: int
    keys: int
    device: torch.device


def broadcast(*shapes: Shape) -> Shape:
    """The shape all of these broadcast to.

    Raises:
        ShapeError: two of them have different sizes, neither of them 1, on one axis.

    Example:
        >>> broadcast((8, 1), (1, 5), (5,))
        (8, 5)
    """
    rank = max([0, *(len(shape) for shape in shapes)])
    joint = [1] * rank
    for shape in shapes:
        for axis, size in enumerate(shape, rank - len(shape)):
            if joint[axis] == 1:
                joint[axis] = size
            elif size != 1 and size != joint[axis]:
                axes = ", ".join(str(list(shape)) for shape in shapes)
                raise ShapeError(
                    f"batch axes {axes} do not broadcast: on each axis, counted from the right,"
                    " sizes must be equal or 1"
                )
    return tuple(joint)


def check_device(name: str, tensor_device: torch.device, device: torch.device) -> None:
    """Refuse a tensor that is not where the queries are."""
    if tensor_device != device:
        raise ValueError(
            f"{name} is on {tensor_device}, the query on {device}: pass {name}.to({str(device)!r})"
        )


def check_rank(name: str, shape: Shape) -> None:
    """Refuse a tensor without a length and a width axis."""
    if len(shape) < 2:
        length = "queries" if name == "query" else "keys"
        raise ShapeError(
            f"{name} has shape {list(shape)}: pass a tensor of shape [..., {length}, width]"
        )


def check_value(keys: int, value: Shape) -> None:
    """Refuse values that are not as many as the keys."""
    check_rank("value", value)
    if value[-2] != keys:
        raise ShapeError(
            f"value has {value[-2]} rows, the memory holds {keys} keys:"
            f" pass a value of shape [..., {keys}, {value[-1]}]"
        )


def check_plane(name: str, shape: Shape, queries: int, keys: int) -> None:
    """Refuse a mask or bias that does not broadcast to (..., queries, keys)."""
    advice = f"pass a {name} of shape [..., {queries}, {keys}]"
    if len(shape) >= 1 and shape[-1] != 1 and shape[-1] != keys:  # compilers trace no "in"
        raise ShapeError(f"{name} covers {shape[-1]} keys, the memory holds {keys}: {advice}")
    if len(shape) >= 2 and shape[-2] != 1 and shape[-2] != queries:
        raise ShapeError(f"{name} covers {shape[-2]} queries, there are {queries}: {advice}")
