"""The answer of a search in a memory."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor

from regard.memory.objects import short


class EmptyMemoryError(ValueError):
    """A lookup in a memory that holds nothing yet."""


@dataclass(frozen=True)
class Found:
    """The entries that a query reads most; unpacks as ``weights, payloads``.

    Args:
        weights: Their weights, largest first; of equal ones the better score, then the first.
        payloads: The payloads stored with them, or None.
        positions: Their positions in the memory.
    """

    weights: Float[Tensor, "*batch found"]
    payloads: list[Any]
    positions: Int[Tensor, "*batch found"]

    def __repr__(self) -> str:
        return f"Found({_listing(self.weights.tolist(), self.payloads)})"

    def __iter__(self) -> Iterator[Any]:
        return iter((self.weights, self.payloads))


def _listing(weights: list[Any], payloads: list[Any]) -> str:
    pairs = zip(weights, payloads, strict=True)
    if weights and isinstance(weights[0], list):
        return ", ".join(f"[{_listing(*pair)}]" for pair in pairs)
    return ", ".join(f"{weight:.2f} {short(payload)}" for weight, payload in pairs)
