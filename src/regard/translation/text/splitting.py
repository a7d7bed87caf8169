"""Splitting of sentence pairs into train, valid and test sets without a sentence in common."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.errors import DataError
from regard.translation.text.checking.repetitions import folded
from regard.translation.text.corpora import Pair

# Pairs that are held out to validate, and as many to test; their share of a smaller corpus.
HELD_OUT, _SHARE = 1000, 0.1
# A family may be at most this share of a test or validation set, so that one common sentence cannot fill it.
_LARGEST_SHARE = 0.01


@dataclass(frozen=True)
class Splits:
    """The pairs of each set, in the order of the corpus.

    Attributes:
        repeated: the number of pairs equal to an earlier one; they are in no set.
        families: the number of groups of pairs with a sentence in common.
        largest: the number of pairs in the largest group.
    """

    train: list[Pair]
    valid: list[Pair]
    test: list[Pair]
    repeated: int
    families: int
    largest: int


def split(
    pairs: Sequence[Pair], *, valid: int | None = None, test: int | None = None, seed: int = 1
) -> Splits:
    """Split sentence pairs at random, families as a whole: hold out so many pairs to validate and to test.

    A size of None is 1,000 pairs, or a tenth of a corpus of fewer than 10,000 different pairs.

    Two pairs are of one family when their sources or their targets are equal, apart from case and punctuation, or when
    a chain of such pairs connects them. Families are drawn in random order; each goes to the test set while it fits,
    then to the validation set. A family larger than 1% of such a set goes to the training set.

    Raises:
        DataError: so many cannot be held out.

    >>> apart = split([Pair("a", "b"), Pair("A!", "c"), Pair("d", "e"), Pair("d", "e")], valid=1, test=0)
    >>> [pair.source for pair in apart.valid], [pair.source for pair in apart.train], apart.repeated
    (['d'], ['a', 'A!'], 1)
    """
    once = list(dict.fromkeys(pairs))
    held_out = min(HELD_OUT, max(1, int(_SHARE * len(once))))
    valid, test = (held_out if size is None else size for size in (valid, test))
    if valid + test >= len(once):
        raise DataError(
            f"{valid} to validate and {test} to test with leave nothing of {len(once)} different pairs to learn from: "
            "hold out fewer"
        )
    family = families(once)
    sizes = np.bincount(family)
    order = np.random.default_rng(seed).permutation(len(sizes))
    part = np.zeros(len(sizes), dtype=np.int8)
    for which, wanted in ((2, test), (1, valid)):
        most, left = max(1, int(wanted * _LARGEST_SHARE)), wanted
        for one in order:
            if part[one] == 0 and sizes[one] <= min(most, left):
                part[one] = which
                left -= int(sizes[one])
            if left == 0:
                break
        if left:
            raise DataError(
                f"{wanted - left} of {wanted} pairs can be held out for {'valid test'.split()[which - 1]}: "
                f"the {len(once)} different pairs are of {len(sizes)} families: hold out fewer"
            )
    learnt, held, measured = (
        [pair for pair, own in zip(once, family, strict=True) if part[own] == which]
        for which in range(3)
    )
    largest = int(sizes.max()) if len(sizes) else 0
    return Splits(learnt, held, measured, len(pairs) - len(once), len(sizes), largest)


def families(pairs: Sequence[Pair]) -> NDArray[np.int64]:
    """The number of each pair's family, from 0 in the order of their first pairs (union-find with path halving)."""
    above: dict[tuple[int, str], tuple[int, str]] = {}

    def root(sentence: tuple[int, str]) -> tuple[int, str]:
        while (parent := above.setdefault(sentence, sentence)) != sentence:
            above[sentence] = sentence = above[parent]
        return sentence

    # Text of punctuation alone is compared unchanged.
    sides = [[(side, folded(text) or text) for side, text in enumerate(p[:2])] for p in pairs]
    for source, target in sides:
        above[root(target)] = root(source)
    numbers: dict[tuple[int, str], int] = {}
    own = [numbers.setdefault(root(source), len(numbers)) for source, _ in sides]
    return np.array(own, dtype=np.int64)
