"""Normalisers by name, and functions of the caller's as normalisers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from torch import Tensor

from regard.attention.names import named
from regard.attention.normalisers.normaliser import (
    FunctionNormaliser,
    Hard,
    Identity,
    Normaliser,
    Softmax,
)
from regard.attention.normalisers.sparse import Entmax, Sparsemax

NormaliserLike: TypeAlias = Normaliser | Callable[[Tensor], Tensor] | str

NAMES: dict[str, type[Normaliser]] = {
    "softmax": Softmax,
    "hard": Hard,
    "sparsemax": Sparsemax,
    "entmax": Entmax,
    "identity": Identity,
}


def as_normaliser(normaliser: NormaliserLike) -> Normaliser:
    """The normaliser itself, the one of this name, or the caller's function made one.

    Raises:
        ValueError: The name is unknown.
        TypeError: It is not a normaliser.

    Example:
        >>> as_normaliser("entmax")
        Entmax(alpha=1.5)
    """
    example = "one of regard.normalisers, its name or a function rows -> rows"
    found = named("normaliser", normaliser, NAMES, example)
    return found if isinstance(found, Normaliser) else FunctionNormaliser(found)
