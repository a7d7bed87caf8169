"""Scores of translations and alignments."""
