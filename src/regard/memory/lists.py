"""Lists of a memory's entries as tensors: the bytes of JSON in UTF-8."""

import json
from collections.abc import Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor

LISTS = ("payloads", "names")  # those of the entries


def as_bytes(name: str, items: Sequence[Any]) -> Tensor:
    """The list as a tensor of bytes; a tuple in it comes back as a list.

    Raises:
        ValueError: JSON cannot hold something in it.
    """
    try:
        text = json.dumps(items, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as problem:
        where = "".join(f"entry {place}: " for place in list(objections(items))[:1])
        raise ValueError(f"{name} cannot be saved as JSON: {where}{problem}") from problem
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)


def objections(items: Sequence[Any]) -> dict[int, str]:
    """Why JSON cannot hold an item, for the places of those that it cannot."""
    reasons = {}
    for place, item in enumerate(items):
        try:
            json.dumps(item, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as problem:
            reasons[place] = str(problem)
    return reasons


def from_bytes(name: str, stored: Tensor, count: int) -> list[Any]:
    """The list of so many items.

    Raises:
        ValueError: The tensor is not that of such a list.
    """
    if stored.dtype != torch.uint8 or stored.dim() != 1:
        raise ValueError(f"{name} are not bytes")
    items = json.loads(stored.cpu().numpy().tobytes(), parse_constant=no_constant)
    if not isinstance(items, list) or len(items) != count:
        raise ValueError(f"{name} are not a list of {count}")
    if name == "names" and not all(isinstance(item, str | None) for item in items):
        raise ValueError("names are not strings")
    return items


def no_constant(constant: str) -> NoReturn:
    """Refuse NaN and infinities, which Python's JSON reads."""
    raise ValueError(f"{constant} is not JSON")
