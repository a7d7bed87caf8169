"""Masks: which keys each query may read."""

from regard.attention.masks import *
from regard.attention.masks import __all__ as __all__
