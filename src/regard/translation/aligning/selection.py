"""The attention that aligns best, found by measuring every choice on gold links."""

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from itertools import product

from regard.errors import DataError
from regard.translation.aligning.aligner import links_of, weights_of
from regard.translation.aligning.choice import Choice, Rows
from regard.translation.aligning.word_attention import WordAttention
from regard.translation.evaluation.alignment import (
    AlignmentScores,
    Link,
    diagonal_links,
    measure_alignment,
)
from regard.translation.evaluation.gold import Gold

THRESHOLDS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5)


@dataclass(frozen=True)
class Tried:
    """A choice and its scores."""

    choice: Choice
    scores: AlignmentScores


@dataclass(frozen=True)
class Chosen:
    """The result of measuring every choice.

    Attributes:
        best: the choice with the lowest error rate on all sentences.
        tried: every choice with its scores.
        crossed: the best choice of each half of the sentences, with its scores on the *other* half.
            They estimate the scores on sentences that were not used to choose.
        diagonal: the scores of linking along the diagonal, as a baseline.
    """

    best: Tried
    tried: list[Tried]
    crossed: tuple[Tried, Tried]
    diagonal: AlignmentScores


def choose(readings: Sequence[WordAttention], gold: Gold) -> Chosen:
    """Try every layer, head, row and method on sentences whose links are known.

    Args:
        readings: the attention of every layer for the sentences of the gold links.

    Raises:
        DataError: fewer than two sentences, or another number than in the gold links.
    """
    count = len(readings)
    if count != len(gold.sure):
        raise DataError(f"{count} sentences for {len(gold.sure)} with gold links")
    full = next((reading for reading in readings if reading.written), None)
    if count < 2 or full is None:
        raise DataError(f"{count} sentences with gold links: two or more are needed to choose")
    sets = slice(None), slice(0, count // 2), slice(count // 2, count)
    tried = [
        [Tried(choice, _measure(links, gold, rows)) for rows in sets]
        for choice, links in _all_links(readings, full)
    ]
    best, first_half, second_half = (
        min(tried, key=lambda trials: trials[number].scores.aer) for number in range(len(sets))
    )
    diagonal = [
        diagonal_links(len(reading.source.words), len(reading.target.words)) for reading in readings
    ]
    return Chosen(
        best=best[0],
        tried=[trial for trial, _, _ in tried],
        crossed=(first_half[2], second_half[1]),
        diagonal=_measure(diagonal, gold, slice(None)),
    )


def _all_links(
    readings: Sequence[WordAttention], full: WordAttention
) -> Iterator[tuple[Choice, list[set[Link]]]]:
    """Every choice with its links. Choices that use the same matrix share it."""
    for plain in matrix_choices(full, (False, True)):
        matrices = [weights_of(reading, plain) for reading in readings]
        shares = (replace(plain, method="threshold", threshold=share) for share in THRESHOLDS)
        for choice in (plain, replace(plain, method="mutual"), *shares):
            yield choice, [links_of(weights, choice) for weights in matrices]


def matrix_choices(full: WordAttention, balanced: Sequence[bool]) -> Iterator[Choice]:
    """A choice for each matrix of a reading: of each head, the mean of each layer, and that of all."""
    places: list[tuple[int | None, int | None]] = []
    for layer, heads in full.written.items():
        places += [(layer, None), *((layer, head) for head in range(len(heads)) if len(heads) > 1)]
    if len(full.written) > 1:
        places.append((None, None))
    rows: tuple[Rows, ...] = ("written", "read")
    for place, row, is_balanced in product(places, rows, balanced):
        yield Choice(*place, row, is_balanced)


def _measure(links: Sequence[Set[Link]], gold: Gold, rows: slice) -> AlignmentScores:
    return measure_alignment(links[rows], gold.sure[rows], gold.possible[rows])
