"""Words with a capital: names, or the first words of sentences."""

import re

from regard.translation.words import KnownWords

# These may stand between two words of a sentence. After any other mark another sentence may begin.
_WITHIN = " ,;'’-"


def may_be_name(known: KnownWords, word: re.Match[str]) -> bool:
    """Whether a word of a sentence may be a name that no training source has."""
    text, small = word[0], word[0].lower()
    if text == small or known.has(text) or _is_part(word):
        return False
    if not is_first(word):
        return True
    if known.has(small) or not known.proper.letters.issuperset(small):
        return False
    return known.proper.cost(small) <= known.ordinary.cost(small)


def is_first(word: re.Match[str]) -> bool:
    """Whether a word is the first of its sentence, or follows a mark after which a sentence may begin."""
    at = word.start() - 1
    while at >= 0 and word.string[at] in _WITHIN:
        at -= 1
    return at < 0 or not word.string[at].isalnum()


def _is_part(word: re.Match[str]) -> bool:
    """Whether digits or underscores are joined to the letters."""
    start, end = word.span()
    around = word.string[max(0, start - 1) : start] + word.string[end : end + 1]
    return any(character.isalnum() or character == "_" for character in around)
