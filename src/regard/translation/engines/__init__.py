"""Engines run a model for a search: its own layers, or compiled loops. One is chosen when a translator is opened."""

from regard.translation.engines.choice import choose
from regard.translation.engines.layers import LayersEngine
from regard.translation.engines.protocol import Searched, SearchEngine

__all__ = ["LayersEngine", "SearchEngine", "Searched", "choose"]
