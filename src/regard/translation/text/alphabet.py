"""The characters of a text: how often each occurs, and which become pieces of a vocabulary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

# Alphabets and syllabaries have some hundred characters at most; Chinese, Japanese and Korean texts have thousands.
_LARGEST_ALPHABET = 1000
_LARGE_SCRIPT_COVERAGE = 0.9995


def count(lines: Iterable[str]) -> Counter[str]:
    """How often each character occurs.

    >>> count(["deed", "de"]).most_common()
    [('d', 3), ('e', 3)]
    """
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(line)
    return counts


def coverage(counts: Counter[str]) -> float:
    """The share of a text whose characters become pieces: 1 for an alphabet, 0.9995 for a script of thousands.

    A rare letter costs one piece. Thousands of rare ideographs would fill the vocabulary.
    """
    return 1.0 if len(counts) <= _LARGEST_ALPHABET else _LARGE_SCRIPT_COVERAGE


def covered(counts: Counter[str], coverage: float) -> set[str]:
    """The most frequent characters that together make up `coverage` of the text (as sentencepiece takes them).

    >>> sorted(covered(Counter("aaaaaaaabbc"), 0.98))
    ['a', 'b', 'c']
    >>> sorted(covered(Counter("aaaaaaaabbc"), 0.7))
    ['a']
    """
    kept: set[str] = set()
    total, reached = counts.total(), 0
    for character, number in counts.most_common():
        if coverage < 1 and reached >= coverage * total:
            break
        kept.add(character)
        reached += number
    return kept
