"""Normalisers: a row of scores -> a row of weights, of which unreadable keys get exactly 0."""

from regard.attention.normalisers.named import NormaliserLike, as_normaliser
from regard.attention.normalisers.normaliser import (
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
]
