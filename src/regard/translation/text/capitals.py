"""Sentences in capitals, which a model knows from small letters."""

import re

_RUN = re.compile(r"[^\W\d_]{2}")


def in_small_letters(text: str) -> str:
    """A text whose letters are all capitals in small letters; any other text, or a single letter, unchanged.

    >>> [in_small_letters(text) for text in ("¿DÓNDE ESTÁ?", "La OTAN.", "我爱NBA", "Y")]
    ['¿dónde está?', 'La OTAN.', '我爱NBA', 'Y']
    """
    capitals = all(letter.isupper() for letter in text if letter.isalpha())
    return text.lower() if capitals and _RUN.search(text) else text
