"""How alike two words are by their letters: names, numbers and words of one origin are alike in both languages."""

import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.loops.compiling import compiled


def similarities(
    source: Sequence[str], target: Sequence[str], pairs: tuple[NDArray[np.int32], NDArray[np.int32]]
) -> NDArray[np.float32]:
    """Dice's coefficient of the runs of two and three letters of each pair of words, accents aside.

        2 |runs of both| / (|runs of the source| + |runs of the target|)

    The begin and the end of a word are letters, too.

    Args:
        source, target: the words.
        pairs: the numbers of source and target words.

    >>> nation, dog = similarities(["nación", "perro"], ["nation", "dog"], (np.array([0, 1]), np.array([0, 1])))
    >>> float(nation) > 0.5, float(dog)
    (True, 0.0)
    """
    numbers: dict[str, int] = {}
    dice = np.empty(len(pairs[0]), np.float32)
    _dice(_runs(source, numbers), _runs(target, numbers), pairs, dice)
    return dice


def _runs(
    words: Sequence[str], numbers: dict[str, int]
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """The sorted numbers of the runs of all words, and where those of each word begin."""
    rows = []
    for word in words:
        text = f"^{_without_accents(word)}$"
        runs = [text[i : i + n] for n in (2, 3) for i in range(len(text) - n + 1)]
        rows.append(sorted(numbers.setdefault(run, len(numbers)) for run in runs))
    begins = np.cumsum([0, *map(len, rows)])
    return np.fromiter((run for row in rows for run in row), np.int32), begins


def _without_accents(word: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFKD", word) if not unicodedata.combining(c))


@compiled
def _dice(source: Any, target: Any, pairs: Any, dice: Any) -> None:
    sources, source_begins = source
    targets, target_begins = target
    for pair in range(dice.size):
        s, t = pairs[0][pair], pairs[1][pair]
        i, source_end = source_begins[s], source_begins[s + 1]
        j, target_end = target_begins[t], target_begins[t + 1]
        total, common = source_end - i + target_end - j, 0
        while i < source_end and j < target_end:
            if sources[i] == targets[j]:
                common, i, j = common + 1, i + 1, j + 1
            elif sources[i] < targets[j]:
                i += 1
            else:
                j += 1
        dice[pair] = 2 * common / total
