"""Normalisers: from a row of scores to a row of weights."""

from regard.attention.normalisers import *
from regard.attention.normalisers import __all__ as __all__
