"""Edits: what regard.change does to the attention of a model."""

import warnings
from typing import Any

from regard.watching import edits
from regard.watching.edits import *
from regard.watching.edits import __all__ as __all__


def __getattr__(name: str) -> Any:
    if name != "Heads":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    text = "regard.edits.Heads is a type and no edit: write int | Iterable[int] | None"
    warnings.warn(text, DeprecationWarning, stacklevel=2)
    return edits.Heads
