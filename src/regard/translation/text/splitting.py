"""Splitting of sentence pairs into train, valid and test sets without a sentence in common."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.errors import DataError
from regard.translation.text.checking.repetitions import folded
from regard.translation.text.corpora import Pair

# Pairs that are held out by default to validate, and as many to test.
_HELD_OUT = 1000
# A family of up to so many pairs may be a tenth of a test or validation set, a larger one a hundredth.
_SMALL_FAMILY = 10


@dataclass(frozen=True)
class Splits:
    """The pairs of each set, in the order of the corpus.

    Attributes:
        repeated: the number of pairs equal to an earlier one; they are in no set.
        families: the number of groups of pairs with a sentence in common.
        largest: the number of pairs in the largest group.
        notes: sentences on default sizes that are below 1,000.
    """

    train: list[Pair]
    valid: list[Pair]
    test: list[Pair]
    repeated: int
    families: int
    largest: int
    notes: tuple[str, ...] = ()


def split(
    pairs: Sequence[Pair], *, valid: int | None = None, test: int | None = None, seed: int = 1
) -> Splits:
    """Split sentence pairs at random, families as a whole: hold out so many pairs to validate and to test.

    A size of None is 1,000 pairs, or a tenth of the different pairs if there are fewer than 10,000, or what can be held
    out of that.

    Two pairs are of one family when their sources or their targets are equal, apart from case and punctuation, or when
    a chain of such pairs connects them. Families are drawn in random order; each goes to the test set while it fits,
    then to the validation set. A family goes to the training set if it is larger than 1% of such a set, or, for
    families of up to 10 pairs, larger than 10% of it: one common sentence cannot fill a set.

    Raises:
        DataError: so many cannot be held out.

    >>> apart = split([Pair("a", "b"), Pair("A!", "c"), Pair("d", "e"), Pair("d", "e")], valid=1, test=0)
    >>> [pair.source for pair in apart.valid], [pair.source for pair in apart.train], apart.repeated
    (['d'], ['a', 'A!'], 1)
    """
    different = list(dict.fromkeys(pairs))
    default = min(_HELD_OUT, max(1, len(different) // 10))
    sizes = {"valid": valid, "test": test}
    counts = {name: default if size is None else size for name, size in sizes.items()}
    if sum(counts.values()) >= len(different):
        raise DataError(
            f"{counts['valid']} to validate and {counts['test']} to test with leave nothing of "
            f"{len(different)} different pairs to learn from: hold out fewer"
        )
    family = families(different)
    members = np.bincount(family)
    order = np.random.default_rng(seed).permutation(len(members))
    sets = np.full(len(members), "train")
    notes = []
    for name in ("test", "valid"):
        free = order[sets[order] == "train"]
        families_drawn = _draw(members, free, counts[name])
        sets[families_drawn] = name
        count = int(members[families_drawn].sum())
        if count < counts[name] and (sizes[name] is not None or not count):
            raise DataError(
                f"{count} of {counts[name]} pairs can be held out for {name}: the {len(different)} different "
                f"pairs are of {len(members)} families: {_advice(members, free, count)}"
            )
        if sizes[name] is None and count < _HELD_OUT:
            why = f"a tenth of {len(different):,}"
            if count < default:
                why = f"not {default:,}: families that share a sentence stay together"
            notes.append(f"{name} has {count:,} pairs, {why}")
    train, validation, measured = (
        [pair for pair, number in zip(different, family, strict=True) if sets[number] == name]
        for name in ("train", "valid", "test")
    )
    largest = int(members.max()) if len(members) else 0
    repeated = len(pairs) - len(different)
    return Splits(
        train, validation, measured, repeated, len(members), largest, tuple(reversed(notes))
    )


def _draw(members: NDArray[np.int64], order: NDArray[np.int64], count: int) -> list[int]:
    """The first families in this order that together have at most so many members; none of them fills the set."""
    families, free = [], count
    for number in order[members[order] <= _largest_family(count)]:
        if members[number] <= free:
            families.append(int(number))
            free -= int(members[number])
        if free == 0:
            break
    return families


def _largest_family(count: int) -> int:
    """How many pairs of one family may be in a set of so many."""
    return max(1, min(_SMALL_FAMILY, count // 10), count // 100)


def _advice(members: NDArray[np.int64], order: NDArray[np.int64], fitting: int) -> str:
    """A number of pairs that whole families fill, where `fitting` pairs of them fitted."""
    sizes = np.unique(members[order]).tolist()
    enough = (size * (10 if size <= _SMALL_FAMILY else 100) for size in sizes)
    for count in (fitting, *enough):
        families = _draw(members, order, count)
        if 0 < members[families].sum() == count < members[order].sum():
            return f"hold out {count}, which whole families fill"
    return "hold out fewer"


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
    numbers_of_pairs = [numbers.setdefault(root(source), len(numbers)) for source, _ in sides]
    return np.array(numbers_of_pairs, dtype=np.int64)
