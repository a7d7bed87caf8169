"""Checks of a corpus before training: counts, lengths, repetitions, characters, pieces."""
