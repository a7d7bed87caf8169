"""Collapsed Gibbs sampling of word links, compiled.

Each target word j of a sentence has a link to a source word i, or to none. A sweep draws each link anew, from its
distribution while all others stay:

    P(j -> i) ~ lexical(t_j | s_i) jump(i - previous) jump(next - i) fertility(s_i)

Each factor is a share of counts, and the counts are those of the present links and of Dirichlet priors. IBM model 1
has the first factor alone, the hidden Markov model the jumps as well (Vogel et al. 1996), and the third stage the
fertility (Östling and Tiedemann 2016, doi:10.1515/pralin-2016-0013).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from regard.loops.compiling import compiled, inner, lanes, lanes_inlined

WORDS, JUMPS, FERTILITY = 1, 2, 3  # the stages
NONE = -1  # the link of a word that comes from no word


class Cells(NamedTuple):
    """The cells of all sentences: each pair of a source and a target position has one.

    `pairs` has the number of the pair of word types of each cell. Cell (i, j) of a sentence lies at `begins` +
    i * `source_step` + j * `target_step`; these depend on which side is the source.
    """

    source: Any
    target: Any
    source_begins: Any
    target_begins: Any
    begins: Any
    pairs: Any
    forward: bool


class Counts(NamedTuple):
    """How often the present links use a pair of types, a source type, the empty word, a jump, a fertility."""

    pairs: Any
    sources: Any
    unlinked: Any
    jumps: Any
    fertility: Any


class Pseudo(NamedTuple):
    """The Dirichlet pseudo-counts of the same; `unlinked` and `jumps` are the same number for each type and jump."""

    pairs: Any
    sources: Any
    unlinked: float
    jumps: float
    fertility: Any
    no_link: float


class Buffers(NamedTuple):
    """Arrays for one sentence: of source positions, and the running sums of jumps."""

    weights: Any
    running: Any
    factors: Any
    norms: Any
    fertility: Any
    jump_sums: Any

    @classmethod
    def of(cls, words: int, longest_jump: int) -> Buffers:
        """For source sentences of so many words at most."""
        weights, running, factors, norms = np.zeros((4, words))
        fertility, sums = np.zeros(words, np.int32), np.zeros(2 * longest_jump + 2)
        return cls(weights, running, factors, norms, fertility, sums)


@inner
def _uniform(state: Any) -> Any:
    """A number in [0, 1): xorshift64* (Vigna 2016)."""
    lanes_inlined()
    x = state[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    state[0] = x
    return np.float64((x * np.uint64(2685821657736338717)) >> np.uint64(11)) * 2.0**-53


@inner
def _sentence(cells: Any, n: Any) -> Any:
    """Where the source and the target of a pair begin, and how many words they have."""
    lanes_inlined()
    place, target_place = cells.source_begins[n], cells.target_begins[n]
    length = cells.source_begins[n + 1] - place
    return place, target_place, length, cells.target_begins[n + 1] - target_place


@inner
def _bin(jump: Any, jumps: Any) -> Any:
    """The place of a jump among the counts: long ones share the outermost."""
    lanes_inlined()
    reach = jumps.size // 2
    return min(max(jump + reach, 0), 2 * reach)


@inner
def _next_link(links: Any, at: Any, end: Any, length: Any) -> Any:
    """The source position of the next linked word, or the end of the sentence."""
    lanes_inlined()
    for j in range(at, end):
        if links[j] != NONE:
            return links[j]
    return length


@inner
def _count(
    cells: Any,
    counts: Any,
    buffers: Any,
    place: Any,
    word: Any,
    cell: Any,
    i: Any,
    near: Any,
    by: Any,
) -> None:
    """Add a link of a target word, or with `by` = -1 remove it, from all counts.

    Args:
        place: where the source sentence begins.
        word: the target type.
        cell: of the link.
        near: the source positions of the links before and after.
    """
    lanes_inlined()
    previous, following = near
    if i == NONE:
        counts.unlinked[word] += by
        counts.unlinked[counts.unlinked.size - 1] += by
        counts.jumps[_bin(following - previous, counts.jumps)] += by
        return
    source, highest = cells.source[place + i], counts.fertility.shape[1] - 1
    counts.pairs[cells.pairs[cell]] += by
    counts.sources[source] += by
    counts.jumps[_bin(i - previous, counts.jumps)] += by
    counts.jumps[_bin(following - i, counts.jumps)] += by
    counts.fertility[source, min(buffers.fertility[i], highest)] -= 1
    buffers.fertility[i] += by
    counts.fertility[source, min(buffers.fertility[i], highest)] += 1


@compiled
def begin(cells: Any, counts: Any, links: Any, state: Any) -> None:
    """Draw a source position for each target word, and count the links."""
    highest = counts.fertility.shape[1] - 1
    for n in range(cells.begins.size - 1):
        place, target_place, length, words = _sentence(cells, n)
        if length == 0 or words == 0:
            continue
        source_step, target_step = (1, length) if cells.forward else (words, 1)
        previous = np.int64(-1)
        for j in range(words):
            i = np.int64(_uniform(state) * length)
            links[target_place + j] = i
            counts.pairs[cells.pairs[cells.begins[n] + i * source_step + j * target_step]] += 1
            counts.sources[cells.source[place + i]] += 1
            counts.jumps[_bin(i - previous, counts.jumps)] += 1
            previous = i
        counts.jumps[_bin(length - previous, counts.jumps)] += 1
        for k in range(length):
            fertility = 0
            for j in range(words):
                fertility += links[target_place + j] == k
            counts.fertility[cells.source[place + k], min(fertility, highest)] += 1


@inner
def _factor(
    stage: Any, cells: Any, counts: Any, pseudo: Any, buffers: Any, place: Any, i: Any
) -> None:
    """The factors of a source position that are the same for every target word."""
    lanes_inlined()
    source, highest = cells.source[place + i], counts.fertility.shape[1] - 1
    below = counts.sources[source] + np.float64(pseudo.sources[source])
    factor = buffers.norms[i]
    if stage >= FERTILITY:
        fewer = min(buffers.fertility[i], highest)
        more = min(buffers.fertility[i] + 1, highest)
        factor *= counts.fertility[source, more] + pseudo.fertility[more]
        # This position itself is counted at its present fertility.
        below *= counts.fertility[source, fewer] - 1 + pseudo.fertility[fewer]
    buffers.factors[i] = factor / below


@inner
def _factors(
    stage: Any, cells: Any, counts: Any, pseudo: Any, buffers: Any, place: Any, length: Any, i: Any
) -> None:
    """The factors of all positions of the type at position i, whose counts have changed."""
    lanes_inlined()
    if i != NONE:
        for k in range(length):
            if cells.source[place + k] == cells.source[place + i]:
                _factor(stage, cells, counts, pseudo, buffers, place, k)


@compiled
def sweep(
    stage: Any,
    cells: Any,
    counts: Any,
    pseudo: Any,
    buffers: Any,
    links: Any,
    state: Any,
    share: Any,
    posterior: Any,
) -> None:
    """Draw every link anew; add `share` of each distribution to `posterior`, by cell."""
    lanes()
    weights, running, factors, norms, fertility, sums = buffers
    reach = counts.jumps.size // 2
    odds = pseudo.no_link / (1 - pseudo.no_link)
    types = counts.unlinked.size - 1
    for n in range(cells.begins.size - 1):
        place, target_place, length, words = _sentence(cells, n)
        if length == 0 or words == 0:
            continue
        source_step, target_step = (1, length) if cells.forward else (words, 1)
        fertility[:length] = 0
        for j in range(target_place, target_place + words):
            if links[j] != NONE:
                fertility[links[j]] += 1
        for k in range(2 * reach + 1):
            sums[k + 1] = sums[k] + counts.jumps[k] + pseudo.jumps
        for i in range(length):
            norms[i] = 1.0
            if stage >= JUMPS:
                # A jump from i may end anywhere in the sentence, or after it: its share is of these.
                low, high = max(reach - i, 0), min(length - i + reach, 2 * reach)
                norms[i] /= sums[high + 1] - sums[low]
            _factor(stage, cells, counts, pseudo, buffers, place, i)
        previous = -1
        for j in range(words):
            word, old = cells.target[target_place + j], links[target_place + j]
            corner = cells.begins[n] + j * target_step
            following = _next_link(links, target_place + j + 1, target_place + words, length)
            near = (previous, following)
            _count(cells, counts, buffers, place, word, corner + old * source_step, old, near, -1)
            _factors(stage, cells, counts, pseudo, buffers, place, length, old)
            for i in range(length):
                pair = cells.pairs[corner + i * source_step]
                weights[i] = factors[i] * (counts.pairs[pair] + pseudo.pairs[pair])
            if stage >= JUMPS:
                for i in range(length):
                    arriving = counts.jumps[_bin(i - previous, counts.jumps)] + pseudo.jumps
                    leaving = counts.jumps[_bin(following - i, counts.jumps)] + pseudo.jumps
                    weights[i] *= arriving * leaving
            total = 0.0
            for i in range(length):
                total += weights[i]
                running[i] = total
            null = odds * (counts.unlinked[word] + pseudo.unlinked)
            null /= counts.unlinked[types] + pseudo.unlinked * types
            if stage >= JUMPS:
                null *= counts.jumps[_bin(following - previous, counts.jumps)] + pseudo.jumps
            else:
                null *= length
            draw, new = _uniform(state) * (total + null), NONE
            if draw < total:
                new = 0
                for i in range(length):
                    new += running[i] <= draw
            if share > 0:
                scale = share / (total + null)
                for i in range(length):
                    posterior[corner + i * source_step] += np.float32(scale * weights[i])
            links[target_place + j] = new
            _count(cells, counts, buffers, place, word, corner + new * source_step, new, near, 1)
            _factors(stage, cells, counts, pseudo, buffers, place, length, new)
            if new != NONE:
                previous = new
