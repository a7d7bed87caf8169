"""One chain of samples: the links of all sentences in one direction, by one form of the words."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.translation.linking import sweeps
from regard.translation.linking.cells import Side, TypePairs
from regard.translation.linking.sweeps import Buffers, Cells, Counts, Pseudo

# Dirichlet pseudo-counts: of each pair of types, each word without a link, each jump and, in sum, each fertility.
_PAIR, _UNLINKED, _JUMP, _FERTILITY = 0.0003, 0.001, 0.5, 0.5
# Alike words have this times a power of Dice's coefficient more.
_ALIKE, _POWER = 3.0, 3
_NO_LINK = 0.05  # the probability, before the words are seen, that a word has no link
LONGEST_JUMP = 30
FERTILITIES = 6  # 0 to 4, and more
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Direction:
    """The text as one side explains the other: forwards, each target word comes from a source word."""

    source: Side
    target: Side
    pairs: TypePairs
    forward: bool

    @property
    def cells(self) -> Cells:
        source, target = self.sides
        return Cells(
            source.numbers,
            target.numbers,
            source.begins,
            target.begins,
            self.pairs.begins,
            self.pairs.cells,
            self.forward,
        )

    @property
    def sides(self) -> tuple[Side, Side]:
        """The side that explains, and the one that is explained."""
        return (self.source, self.target) if self.forward else (self.target, self.source)

    @property
    def type_pairs(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """By pair of types, the number of the type that explains, and of the other."""
        pairs = self.pairs.source, self.pairs.target
        return pairs if self.forward else pairs[::-1]

    def counts(self) -> Counts:
        """No links at all."""
        source, target = self.sides
        return Counts(
            pairs=np.zeros(len(self.pairs.source), np.float32),
            sources=np.zeros(len(source.forms), np.float32),
            unlinked=np.zeros(len(target.forms) + 1, np.float32),  # the last is the sum
            jumps=np.zeros(2 * LONGEST_JUMP + 1),
            fertility=np.zeros((len(source.forms), FERTILITIES), np.float32),
        )

    def pseudo(self, dice: Floats) -> Pseudo:
        pairs = np.float32(_PAIR) + np.float32(_ALIKE) * dice**_POWER
        sums = np.bincount(self.type_pairs[0], pairs, len(self.sides[0].forms))
        return Pseudo(
            pairs, sums.astype(np.float32), _UNLINKED, _JUMP, np.ones(FERTILITIES), _NO_LINK
        )


def sample(
    direction: Direction,
    counts: Counts,
    dice: Floats,
    posterior: Floats,
    *,
    rounds: int,
    share: float,
    seed: list[int],
    tick: Callable[[], None],
) -> None:
    """Draw all links `rounds` times from the full model, after a quarter as often from each of the simpler ones.

    Args:
        counts: those of earlier text; those of the last sample are added.
        posterior: by cell; `share` of the probability of each link is added. It is the mean over the second half
            of the samples of the distributions that the links are drawn from, which varies less than the links do.
        tick: called before each round; an error that it raises ends the chain.
    """
    cells, pseudo = direction.cells, direction.pseudo(dice)
    state = np.random.SeedSequence(seed).generate_state(1, np.uint64) | np.uint64(1)
    links = np.full(len(cells.target), sweeps.NONE, np.int32)
    longest = int(np.diff(cells.source_begins).max(initial=0))
    buffers = Buffers.of(longest, LONGEST_JUMP)
    sweeps.begin(cells, counts, links, state)
    simple = simple_rounds(rounds)
    for stage, count in (
        (sweeps.WORDS, simple),
        (sweeps.JUMPS, simple),
        (sweeps.FERTILITY, rounds),
    ):
        histogram = counts.fertility.sum(0, dtype=np.float64) + 1
        pseudo.fertility[:] = _FERTILITY * FERTILITIES * histogram / histogram.sum()
        for k in range(count):
            tick()
            averaged = stage == sweeps.FERTILITY and k >= count // 2
            weight = share / (count - count // 2) if averaged else 0.0
            sweeps.sweep(stage, cells, counts, pseudo, buffers, links, state, weight, posterior)


def simple_rounds(rounds: int) -> int:
    """How many rounds each of the simpler models has."""
    return max(2, rounds // 4)
