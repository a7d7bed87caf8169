"""Regard: attention you can look inside."""

from __future__ import annotations

import importlib
from importlib import metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard import (
        edits,
        kernels,
        looks,
        masks,
        memory,
        metrics,
        named,
        normalisers,
        positions,
        programs,
        scores,
    )
    from regard.attention.attend import attend, look, read
    from regard.attention.blocks import TransformerBlock
    from regard.attention.heads import MultiHeadAttention
    from regard.attention.kernels.choose import explain, kernel
    from regard.attention.looks import Look
    from regard.attention.ranks import RankError, RanksLook
    from regard.attention.shapes import ShapeError
    from regard.attention.versions import ChangedError
    from regard.costs import cost
    from regard.memory import CharacterNgrams, HeadMemory, Memory
    from regard.translation.translator import Translator
    from regard.translation.word_links import align
    from regard.viewing.plot import plot
    from regard.watching import Seen, WatchError, declare
    from regard.watching.change import change
    from regard.watching.effects import effects
    from regard.watching.routes import routes
    from regard.watching.watch import watch

try:
    __version__ = metadata.version("regard")
except metadata.PackageNotFoundError:  # read from a checkout that was never installed
    __version__ = "0.2.0"

__all__ = [
    "ChangedError",
    "CharacterNgrams",
    "HeadMemory",
    "Look",
    "Memory",
    "MultiHeadAttention",
    "RankError",
    "RanksLook",
    "Seen",
    "ShapeError",
    "TransformerBlock",
    "Translator",
    "WatchError",
    "__version__",
    "align",
    "attend",
    "change",
    "cost",
    "declare",
    "edits",
    "effects",
    "explain",
    "kernel",
    "kernels",
    "look",
    "looks",
    "masks",
    "memory",
    "metrics",
    "named",
    "normalisers",
    "plot",
    "positions",
    "programs",
    "read",
    "routes",
    "scores",
    "watch",
]

_NAMES = {
    "ChangedError": "regard.attention.versions",
    "CharacterNgrams": "regard.memory",
    "HeadMemory": "regard.memory",
    "Look": "regard.attention.looks",
    "Memory": "regard.memory",
    "MultiHeadAttention": "regard.attention.heads",
    "RankError": "regard.attention.ranks",
    "RanksLook": "regard.attention.ranks",
    "Seen": "regard.watching",
    "ShapeError": "regard.attention.shapes",
    "TransformerBlock": "regard.attention.blocks",
    "Translator": "regard.translation.translator",
    "WatchError": "regard.watching",
    "align": "regard.translation.word_links",
    "attend": "regard.attention.attend",
    "change": "regard.watching",
    "cost": "regard.costs.counting",
    "declare": "regard.watching",
    "effects": "regard.watching",
    "explain": "regard.attention.kernels.choose",
    "kernel": "regard.attention.kernels.choose",
    "look": "regard.attention.attend",
    "plot": "regard.viewing.plot",
    "read": "regard.attention.attend",
    "routes": "regard.watching",
    "watch": "regard.watching",
}
_MODULES = set(__all__) - set(_NAMES) - {"__version__"}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used, so that `import regard` alone loads no torch."""
    if name in _NAMES:
        public = getattr(importlib.import_module(_NAMES[name]), name)
    elif name in _MODULES:
        public = importlib.import_module(f"regard.{name}")
    else:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    globals()[name] = public
    return public


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
