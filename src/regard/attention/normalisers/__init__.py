"""Normalisers: a row of scores -> a row of weights, of which unreadable keys get exactly 0."""

from collections.abc import Callable
from typing import TypeAlias

from torch import Tensor

from regard.attention.by_name import named
from regard.attention.normalisers.normaliser import (
    CLASSES,
    FunctionNormaliser,
    Hard,
    Identity,
    Normaliser,
    Softmax,
)
from regard.attention.normalisers.sparse import Entmax, Sparsemax

__all__ = [
    "Entmax",
    "Hard",
    "Identity",
    "Normaliser",
    "NormaliserLike",
    "FunctionNormaliser",
    "Softmax",
    "Sparsemax",
    "as_normaliser",
    "is_plain",
]

NormaliserLike: TypeAlias = Normaliser | Callable[[Tensor], Tensor] | str


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
    built = named("normaliser", normaliser, CLASSES, example)
    return built if isinstance(built, Normaliser) else FunctionNormaliser(built)


def is_plain(normaliser: Normaliser) -> bool:
    """Whether a normaliser is one of ours, which reads nothing but the scores."""
    return normaliser.is_ours
