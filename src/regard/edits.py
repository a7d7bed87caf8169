"""Edits: what regard.change does to the attention of a model."""

from regard.watching.edits import *
from regard.watching.edits import __all__ as __all__
