"""Regard: attention you can look inside."""

from __future__ import annotations

import importlib
from importlib import metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard import named, programs
    from regard.attention import kernels, looks, masks, normalisers, positions, scores
    from regard.attention.attend import attend, look, read
    from regard.attention.blocks import TransformerBlock
    from regard.attention.heads import MultiHeadAttention
    from regard.attention.kernels.choose import explain, kernel
    from regard.attention.looks import Look
    from regard.attention.memory import CharacterNgrams, Memory
    from regard.attention.shapes import ShapeError
    from regard.costs import cost
    from regard.viewing.plot import plot
    from regard.watching import Seen, WatchError, change, declare, edits, watch

try:
    __version__ = metadata.version("regard")
except metadata.PackageNotFoundError:  # read from a checkout that was never installed
    __version__ = "0.2.0"

__all__ = [
    "CharacterNgrams",
    "Look",
    "Memory",
    "MultiHeadAttention",
    "Seen",
    "ShapeError",
    "TransformerBlock",
    "WatchError",
    "__version__",
    "attend",
    "change",
    "cost",
    "declare",
    "edits",
    "explain",
    "kernel",
    "kernels",
    "look",
    "looks",
    "masks",
    "named",
    "normalisers",
    "plot",
    "positions",
    "programs",
    "read",
    "scores",
    "watch",
]

_NAMES = {
    "CharacterNgrams": "regard.attention.memory",
    "attend": "regard.attention.attend",
    "look": "regard.attention.attend",
    "read": "regard.attention.attend",
    "explain": "regard.attention.kernels.choose",
    "kernel": "regard.attention.kernels.choose",
    "Look": "regard.attention.looks",
    "Memory": "regard.attention.memory",
    "MultiHeadAttention": "regard.attention.heads",
    "ShapeError": "regard.attention.shapes",
    "TransformerBlock": "regard.attention.blocks",
    "cost": "regard.costs.counting",
    "Seen": "regard.watching",
    "WatchError": "regard.watching",
    "change": "regard.watching",
    "declare": "regard.watching",
    "watch": "regard.watching",
    "plot": "regard.viewing.plot",
}
_MODULES = {
    name: f"regard.attention.{name}"
    for name in ("scores", "normalisers", "masks", "positions", "kernels", "looks")
} | {
    "edits": "regard.watching.edits",
    "named": "regard.named",
    "programs": "regard.programs",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used, so that `import regard` alone loads no torch."""
    if name in _NAMES:
        found = getattr(importlib.import_module(_NAMES[name]), name)
    elif name in _MODULES:
        found = importlib.import_module(_MODULES[name])
    else:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
