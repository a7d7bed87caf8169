"""Translating on a processor: weights laid out for it, matrix products, and compiled loops between them."""
