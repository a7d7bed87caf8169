"""Sentence pairs of which a model makes one side: back-translation and distillation."""
