"""The compiled sampler against its equation and against counts made anew from its links."""

from __future__ import annotations

import numpy as np
import pytest

from regard.translation.linking import chain, sweeps
from regard.translation.linking.cells import Side, TypePairs
from regard.translation.linking.chain import Direction
from regard.translation.linking.similarity import similarities
from regard.translation.linking.sweeps import FERTILITY, JUMPS, NONE, WORDS, Buffers

PAIRS = [
    ("la casa verde .", "the green house ."),
    ("la mesa", "the table"),
    ("", "nothing"),
    ("una casa no es una mesa , no , no , no", "a house is not a table"),
    ("la la la la la la la la", "la la"),
]
REACH = chain.LONGEST_JUMP


def text(forward: bool) -> Direction:
    source, target = (Side.of([pair[side].split() for pair in PAIRS], 4) for side in (0, 1))
    return Direction(source, target, TypePairs.of(source, target), forward)


class Sampler:
    """A chain whose parts a test can see."""

    def __init__(self, forward: bool) -> None:
        self.direction = text(forward)
        self.cells, self.counts = self.direction.cells, self.direction.counts()
        types = self.direction.pairs
        forms = self.direction.source.forms, self.direction.target.forms
        self.pseudo = self.direction.pseudo(similarities(*forms, (types.source, types.target)))
        self.links = np.zeros(len(self.cells.target), np.int32) + NONE
        self.state = np.array([7], np.uint64)
        self.buffers = Buffers.of(20, REACH)
        self.posterior = np.zeros(len(self.cells.pairs), np.float32)
        sweeps.begin(self.cells, self.counts, self.links, self.state)

    def sweep(self, stage: int) -> None:
        self.posterior[:] = 0
        sweeps.sweep(
            stage,
            self.cells,
            self.counts,
            self.pseudo,
            self.buffers,
            self.links,
            self.state,
            1.0,
            self.posterior,
        )

    def sentences(self):
        """Source types, target types, links and cells (target, source) of each sentence pair."""
        cells = self.cells
        for n in range(len(PAIRS)):
            s = slice(*cells.source_begins[n : n + 2])
            t = slice(*cells.target_begins[n : n + 2])
            place = np.arange(*cells.begins[n : n + 2])
            lengths = s.stop - s.start, t.stop - t.start
            grid = place.reshape(lengths[::-1]) if cells.forward else place.reshape(lengths).T
            yield cells.source[s], cells.target[t], self.links[t], grid


def recounted(sampler: Sampler) -> sweeps.Counts:
    """The counts of the links, without the compiled code."""
    counts = sampler.direction.counts()
    for source, target, links, grid in sampler.sentences():
        if not len(source) or not len(target):
            continue
        linked = [i for i in links if i != NONE]
        for j, i in enumerate(links):
            if i == NONE:
                counts.unlinked[[target[j], -1]] += 1
            else:
                counts.pairs[sampler.cells.pairs[grid[j, i]]] += 1
                counts.sources[source[i]] += 1
        for previous, following in zip([-1, *linked], [*linked, len(source)], strict=True):
            counts.jumps[np.clip(following - previous, -REACH, REACH) + REACH] += 1
        for i, s in enumerate(source):
            counts.fertility[s, min(linked.count(i), counts.fertility.shape[1] - 1)] += 1
    return counts


@pytest.mark.parametrize("forward", [True, False])
def test_counts_are_those_of_the_links_after_every_sweep(forward):
    sampler = Sampler(forward)
    for stage in [WORDS] * 3 + [JUMPS] * 3 + [FERTILITY] * 20:
        for ours, anew in zip(sampler.counts, recounted(sampler), strict=True):
            np.testing.assert_array_equal(ours, anew)
        sampler.sweep(stage)


@pytest.mark.parametrize("stage", [WORDS, JUMPS, FERTILITY])
@pytest.mark.parametrize("forward", [True, False])
def test_the_last_link_is_drawn_from_the_distribution_of_the_equation(forward, stage):
    sampler = Sampler(forward)
    for _ in range(5):
        sampler.sweep(stage)
        *_, (source, target, links, grid) = sampler.sentences()
        expected = conditional(sampler, source, target, links, grid, stage)
        np.testing.assert_allclose(sampler.posterior[grid[-1]], expected, rtol=1e-5)


def conditional(sampler, source, target, links, grid, stage):
    """P(the last word comes from i), with the link itself taken out of the counts: no formula of differences."""
    counts, pseudo, word = recounted(sampler), sampler.pseudo, target[-1]
    old, linked = links[-1], [int(i) for i in links[:-1] if i != NONE]
    previous, end = (linked or [-1])[-1], len(source)

    def add(i: int, by: int) -> None:
        steps = [end - previous] if i == NONE else [i - previous, end - i]
        for step in steps:
            counts.jumps[step + REACH] += by
        if i == NONE:
            counts.unlinked[[word, -1]] += by
        else:
            counts.pairs[sampler.cells.pairs[grid[-1, i]]] += by
            counts.sources[source[i]] += by

    # The sums by which jumps are divided are those at the begin of the sentence; here there is one word of it, or
    # the words before have the same jumps.
    jumps_then = sums_at_the_begin(sampler)
    add(old, -1)
    weights = []
    for i, s in enumerate(source):
        pair = sampler.cells.pairs[grid[-1, i]]
        weight = (counts.pairs[pair] + pseudo.pairs[pair]) / (counts.sources[s] + pseudo.sources[s])
        if stage >= JUMPS:
            jump = counts.jumps + pseudo.jumps
            weight *= jump[i - previous + REACH] * jump[end - i + REACH]
            weight /= jumps_then[REACH - i : REACH + end - i + 1].sum()
        if stage >= FERTILITY:
            fertility = linked.count(i)
            present = [linked.count(k) + (k == old) for k in range(end)]
            row = counts.fertility[s].copy()
            # The old link is out: its word has one link less.
            if old != NONE and source[old] == s:
                row[min(present[old], 5)] -= 1
                row[min(present[old] - 1, 5)] += 1
            more, same = min(fertility + 1, 5), min(fertility, 5)
            weight *= (row[more] + pseudo.fertility[more]) / (
                row[same] - 1 + pseudo.fertility[same]
            )
        weights.append(weight)
    types = len(counts.unlinked) - 1
    null = pseudo.no_link / (1 - pseudo.no_link)
    null *= (counts.unlinked[word] + pseudo.unlinked) / (
        counts.unlinked[-1] + types * pseudo.unlinked
    )
    null *= end if stage == WORDS else counts.jumps[end - previous + REACH] + pseudo.jumps
    return np.array(weights) / (sum(weights) + null)


def sums_at_the_begin(sampler: Sampler):
    return sampler.buffers.jump_sums[1:] - sampler.buffers.jump_sums[:-1]
