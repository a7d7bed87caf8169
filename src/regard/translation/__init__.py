"""Translators: models, text, training, search and evaluation. Knows tensors and text, no screens."""
