"""Compiled loops for additive attention on a processor."""
