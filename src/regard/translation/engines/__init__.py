"""Engines run a model for a search: its own layers, or compiled loops. One is chosen when a translator is opened."""

from regard.translation.engines.engine import SearchEngine, choose, evaluating

__all__ = ["SearchEngine", "choose", "evaluating"]
