"""Normalisers by name, and functions of the caller's as normalisers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from torch import Tensor

from regard.attention.names import not_callable, unknown
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
    if isinstance(normaliser, Normaliser):
        return normaliser
    if isinstance(normaliser, str):
        if normaliser not in NAMES:
            raise unknown("normaliser", normaliser, NAMES)
        return NAMES[normaliser]()
    if isinstance(normaliser, type) or not callable(normaliser):
        example = "one of regard.normalisers, its name or a function rows -> rows"
        raise not_callable("normaliser", normaliser, example)
    return FunctionNormaliser(normaliser)
