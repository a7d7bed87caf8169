"""Typing errors: words that no training source has, read as known words of almost the same letters.

Kernighan, Church and Gale 1990 ("A Spelling Correction Program Based on a Noisy Channel Model"), with frequency for the
probability of a word, every single error equally probable, and the translation model as the judge.
"""

import re
from collections.abc import Iterator, Sequence

from regard.translation.reading.again import Reading, Translate, clearer
from regard.translation.text.accents import like
from regard.translation.text.names import WORD
from regard.translation.words import KnownWords

# Shorter words have too many neighbours; the neighbours of longer ones take long to make.
_SHORTEST, _LONGEST = 4, 32


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
    """The text with the most frequent known word in the place of every unknown one that has such a neighbour.

    Words with a capital inside a sentence stay: they may be names.
    """
    first = WORD.search(text)

    def read(found: re.Match[str]) -> str:
        word = found[0]
        small = word.lower()
        named = word != small and first is not None and found.start() != first.start()
        if not _SHORTEST <= len(word) <= _LONGEST or named or known.has(small):
            return word
        ranks = [
            known.rank[other] for other in _neighbours(small, known.letters) if known.has(other)
        ]
        return like(known.words[min(ranks)], word) if ranks else word

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
