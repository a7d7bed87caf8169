"""Positions: vectors that are added to a sequence, rotations of queries and keys, and biases of scores."""

from regard.attention.positions import *
from regard.attention.positions import __all__ as __all__
