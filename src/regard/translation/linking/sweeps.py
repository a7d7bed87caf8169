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

from regard.loops.compiling import compiled, inner

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
    """Room for one sentence: weights of source positions, their fertility, and running sums of jumps."""

    weights: Any
    fertility: Any
    jump_sums: Any


@inner
def _uniform(state: Any) -> Any:
    """A number in [0, 1): xorshift64* (Vigna 2016)."""
    x = state[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    state[0] = x
    return np.float64((x * np.uint64(2685821657736338717)) >> np.uint64(11)) * 2.0**-53


@inner
def _sentence(cells: Any, n: Any) -> Any:
    """Where the source and the target of a pair begin, and how many words they have."""
    place, target_place = cells.source_begins[n], cells.target_begins[n]
    length = cells.source_begins[n + 1] - place
    return place, target_place, length, cells.target_begins[n + 1] - target_place


@inner
def _bin(jump: Any, jumps: Any) -> Any:
    """The place of a jump among the counts: long ones share the outermost."""
    reach = jumps.size // 2
    return min(max(jump + reach, 0), 2 * reach)


@inner
def _next_link(links: Any, at: Any, end: Any, length: Any) -> Any:
    """The source position of the next linked word, or the end of the sentence."""
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
    weights, fertility, sums = buffers
    highest, reach = counts.fertility.shape[1] - 1, counts.jumps.size // 2
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
        previous = -1
        for j in range(words):
            word, old = cells.target[target_place + j], links[target_place + j]
            corner = cells.begins[n] + j * target_step
            following = _next_link(links, target_place + j + 1, target_place + words, length)
            near = (previous, following)
            _count(cells, counts, buffers, place, word, corner + old * source_step, old, near, -1)
            total = 0.0
            for i in range(length):
                source, pair = cells.source[place + i], cells.pairs[corner + i * source_step]
                weight = np.float64(counts.pairs[pair] + pseudo.pairs[pair]) / (
                    counts.sources[source] + pseudo.sources[source]
                )
                if stage >= JUMPS:
                    # A jump from i may end anywhere in the sentence, or after it: its share is of these.
                    low, high = max(reach - i, 0), min(length - i + reach, 2 * reach)
                    weight *= counts.jumps[_bin(i - previous, counts.jumps)] + pseudo.jumps
                    weight *= counts.jumps[_bin(following - i, counts.jumps)] + pseudo.jumps
                    weight /= sums[high + 1] - sums[low]
                if stage >= FERTILITY:
                    fewer, more = min(fertility[i], highest), min(fertility[i] + 1, highest)
                    weight *= counts.fertility[source, more] + pseudo.fertility[more]
                    # This position itself is counted at its present fertility.
                    weight /= counts.fertility[source, fewer] - 1 + pseudo.fertility[fewer]
                weights[i] = weight
                total += weight
            null = odds * (counts.unlinked[word] + pseudo.unlinked)
            null /= counts.unlinked[types] + pseudo.unlinked * types
            if stage >= JUMPS:
                null *= counts.jumps[_bin(following - previous, counts.jumps)] + pseudo.jumps
            else:
                null *= length
            remaining = _uniform(state) * (total + null)
            new = NONE
            for i in range(length):
                remaining -= weights[i]
                if remaining < 0:
                    new = i
                    break
            if share > 0:
                scale = share / (total + null)
                for i in range(length):
                    posterior[corner + i * source_step] += np.float32(scale * weights[i])
            links[target_place + j] = new
            _count(cells, counts, buffers, place, word, corner + new * source_step, new, near, 1)
            if new != NONE:
                previous = new
