"""Memories: the soft dictionary, its encoder of strings, and the keys and values of a head."""

from regard.attention.memory import *
from regard.attention.memory import __all__ as __all__
