"""Looks: answers about attention weights."""

from regard.attention.looks import *
from regard.attention.looks import __all__ as __all__
