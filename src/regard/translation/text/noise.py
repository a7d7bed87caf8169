"""Ways in which people write a sentence otherwise than its corpus does."""

import re
from random import Random

_OPENING, _FINAL = "¿¡", ".?!…。？！؟۔।"
_FIRST_LETTER = re.compile(r"(?<![\w'’])[^\W\d_]")
_LONG_WORD = re.compile(r"[^\W\d_]{4,}")
_WORD = re.compile(r"[^\W\d_]{2,}")


def without_marks(text: str, *, opening: bool = False, final: bool = True) -> str:
    """Without the marks that open or end a sentence; a text of marks alone stays.

    >>> without_marks("¿Vienes?"), without_marks("¿Vienes?", opening=True, final=False)
    ('¿Vienes', 'Vienes?')
    """
    bare = text.lstrip(_OPENING) if opening else text
    bare = bare.rstrip(_FINAL) if final else bare
    return bare.strip() or text


def capitalised(text: str) -> str:
    """Every word with a capital.

    >>> capitalised("el gato está aquí")
    'El Gato Está Aquí'
    """
    return _FIRST_LETTER.sub(lambda letter: letter[0].upper(), text)


def emphasised(text: str, random: Random) -> str:
    """One word in capitals."""
    words = list(_WORD.finditer(text))
    if not words:
        return text
    word = random.choice(words)
    return text[: word.start()] + word[0].upper() + text[word.end() :]


def mistyped(text: str, random: Random) -> str:
    """One typing error in a word of four letters or more: two letters exchanged, or one lost, doubled or replaced.

    Belinkov and Bisk 2018 (arXiv 1711.02173); as training data, Karpukhin et al. 2019 (arXiv 1902.01509).
    """
    words = [word for word in _LONG_WORD.finditer(text) if len(set(word[0])) > 1]
    if not words:
        return text
    word = random.choice(words)
    while True:  # equal letters exchanged, or a letter replaced by itself, are no error
        place = random.randrange(word.start(), word.end() - 1)
        left, right = text[place], text[place + 1]
        letter = random.choice(word[0]).lower()
        typed = random.choice((right + left, right, left + left + right, letter + right))
        if typed != left + right:
            return text[:place] + typed + text[place + 2 :]
