"""Sentences in capitals, which a model knows from small letters."""

import re

_RUN = re.compile(r"[^\W\d_]{2}")


def in_small_letters(text: str) -> str:
    """A text whose letters are all capitals in small letters; any other text, or a single letter, unchanged.

    >>> [in_small_letters(text) for text in ("¿DÓNDE ESTÁ?", "La OTAN.", "Y")]
    ['¿dónde está?', 'La OTAN.', 'Y']
    """
    return text.lower() if text.isupper() and _RUN.search(text) else text
