"""Monolingual text turned into sentence pairs by a model of the other direction."""
