"""Sentences that are written otherwise than the training text: typing errors, names, numbers, no accents."""
