"""Typing errors: words that no training source has, read as known words of almost the same letters.

Kernighan, Church and Gale 1990 ("A Spelling Correction Program Based on a Noisy Channel Model"), with frequency for the
probability of a word, every single error equally probable, and the translation model as the judge.
"""

import re
from collections.abc import Iterator, Sequence

from regard.translation.reading.again import Reading, Translate, clearer
from regard.translation.reading.capitals import may_be_name
from regard.translation.text.accents import like
from regard.translation.text.names import WORD
from regard.translation.words import KnownWords

# Shorter words have too many neighbours; the neighbours of longer ones take long to make.
_SHORTEST, _LONGEST = 4, 24


def corrected(
    known: KnownWords, readings: Sequence[Reading], translate: Translate
) -> list[Reading]:
    """The readings of sentences, with other spellings where these make the translation clearly more probable."""
    readings = list(readings)
    other = {row: correct(known, one.source) for row, one in enumerate(readings)}
    other = {row: text for row, text in other.items() if text != readings[row].source}
    again = translate(list(other.values()))
    for (row, text), one in zip(other.items(), again, strict=True):
        if clearer(one, readings[row].found):
            readings[row] = Reading(text, one)
    return readings


def correct(known: KnownWords, text: str) -> str:
    """The text with the most frequent known word of one other letter in the place of every unknown word.

    Words that may be names stay.
    """

    def read(found: re.Match[str]) -> str:
        word = found[0]
        small = word.lower()
        if not _SHORTEST <= len(word) <= _LONGEST or known.has(small) or may_be_name(known, found):
            return word
        others = filter(known.has, _neighbours(small, known.letters))
        best = min(others, key=known.rank.__getitem__, default=None)
        return word if best is None else like(best, word)

    return WORD.sub(read, text)


def _neighbours(word: str, letters: Sequence[str]) -> Iterator[str]:
    """All that one error makes of a word: a letter lost, exchanged with the next, replaced or added."""
    for at in range(len(word) + 1):
        before, after = word[:at], word[at:]
        yield before + after[1:]
        yield before + after[1:2] + after[:1] + after[2:]
        for letter in letters:
            yield before + letter + after[1:]
            yield before + letter + after
