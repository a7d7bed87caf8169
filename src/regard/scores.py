"""Scores: how well each key fits each query."""

from regard.attention.scores import *
from regard.attention.scores import __all__ as __all__
