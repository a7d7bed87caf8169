"""Names in a corpus: the words with a capital that both sides of a pair have."""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain

from regard.translation.text.corpora import Pair
from regard.translation.text.letters import WORD, has_capital

# A name is written in small letters at most this often, beside its capital.
_SMALL_LETTERS = 0.05


def named(pairs: Sequence[Pair]) -> list[tuple[Pair, list[str]]]:
    """The pairs that have names, with these: words with a capital that both sides have, equally often.

    The text hardly writes them in small letters.
    """
    lines = chain.from_iterable(pair[:2] for pair in pairs)
    counts = Counter(chain.from_iterable(map(WORD.findall, lines)))

    def is_name(word: str) -> bool:
        small = counts[word.lower()]
        return has_capital(word) and small <= _SMALL_LETTERS * counts[word]

    return [(pair, names) for pair in pairs if (names := list(filter(is_name, shared(pair, WORD))))]


def shared(pair: Pair, pattern: re.Pattern[str]) -> list[str]:
    """The matches of a pattern that both sides have, equally often."""
    sources, targets = pattern.findall(pair.source), pattern.findall(pair.target)
    return [text for text in dict.fromkeys(sources) if sources.count(text) == targets.count(text)]
