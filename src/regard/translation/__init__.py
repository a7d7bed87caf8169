"""Translators: models, text, training, search and evaluation. Knows tensors and text, no screens."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.translation.decoding.search import Search
    from regard.translation.results import Translation
    from regard.translation.text.glossary import Glossary
    from regard.translation.translator import Translator

__all__ = ["Glossary", "Search", "Translation", "Translator"]

_MODULES = {
    "Glossary": "text.glossary",
    "Search": "decoding.search",
    "Translation": "results",
    "Translator": "translator",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: settings, text and formulas of costs need no torch."""
    if name not in _MODULES:
        raise AttributeError(f"module 'regard.translation' has no attribute {name!r}")
    return getattr(importlib.import_module(f"regard.translation.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
