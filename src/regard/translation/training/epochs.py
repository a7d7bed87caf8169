"""Passes over a corpus: the batches of each pass, and the part of a batch that each process takes."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

import numpy as np
from numpy.typing import NDArray

from regard.translation.runs import Tokenizers
from regard.translation.settings.configuration import Configuration
from regard.translation.text.batches import Batch, collate, draw_rows, plan
from regard.translation.text.corpora import Pair
from regard.translation.text.subwords import Ragged, Segmenter
from regard.translation.training.noise import Noise


@dataclass(frozen=True)
class Part:
    """The part of a batch that one process takes.

    Attributes:
        rows: all sentences of the whole batch, as rows of the corpus.
        target_tokens: of the whole batch.
        idle: the batch has fewer sentences than there are processes. This process computes a sentence of another one,
            so that all exchange the same gradients, and counts it with weight 0.
    """

    batch: Batch
    rows: NDArray[np.int64]
    target_tokens: int
    idle: bool = False


class Epochs:
    """The batches of all passes. Pass n depends on the seed and n only, so training can resume at any batch.

    The batches are the same for any number of processes; process `rank` of `size` takes its part of each.
    """

    def __init__(
        self,
        pairs: Sequence[Pair],
        tokenizers: Tokenizers,
        configuration: Configuration,
        rank: int = 0,
        size: int = 1,
    ) -> None:
        sampling = configuration.tokenizer.sampling
        self._source = Segmenter(tokenizers.source, sampling)
        self._target = Segmenter(tokenizers.target, sampling)
        self._words = self._in_words(pairs)
        self._known_words = len(self._source), len(self._target)  # without those of noise
        data = configuration.data
        self._noise = None
        if data.noise is not None:
            several = len(data.source_languages) > 1 or len(data.target_languages) > 1
            languages = data.source_languages[0], data.target_languages[0]
            self._noise = Noise(data.noise, pairs, ("", "") if several else languages)
        weights = np.array([pair.weight for pair in pairs])
        self._weights = weights if bool((weights != 1).any()) else None
        self._configuration = configuration
        self._rank, self._size = rank, size
        self._epoch = -1

    def unseen(self) -> frozenset[str]:
        """The source pieces that the corpus never has, nor the noise of the first pass."""
        self._prepare(0)
        return self._source.unseen()

    def batches(self, epoch: int) -> int:
        """The number of batches of a pass."""
        self._prepare(epoch)
        return len(self._plan)

    def part(self, epoch: int, number: int) -> Part:
        """The rows of a batch that this process takes. Rows of pairs that noise has changed are -1 in it."""
        self._prepare(epoch)
        rows = self._plan[number]
        targets = self._targets.lengths[rows] + 1
        process_rows = rows[
            share(self._sources.lengths[rows] + 1 + targets, self._rank, self._size)
        ]
        idle = len(process_rows) == 0
        batch_rows = rows[:1] if idle else process_rows
        batch = collate(self._sources, self._targets, batch_rows)
        batch = replace(batch, rows=np.where(self._changed[batch_rows], -1, batch_rows))
        return Part(batch, rows, int(targets.sum()), idle)

    def largest(self) -> Part:
        """Of the first 50 parts the one with the most positions."""
        candidates = (self.part(0, number) for number in range(min(50, self.batches(0))))
        return max(
            candidates, key=lambda part: part.batch.source.numel() + part.batch.target_in.numel()
        )

    def _prepare(self, epoch: int) -> None:
        if epoch == self._epoch:
            return
        configuration = self._configuration
        random = np.random.default_rng([configuration.seed, epoch])
        sources, targets, self._changed = self._noisy(epoch)
        if configuration.tokenizer.sampling > 0:
            self._sources = self._source.draw(sources, random, configuration.data.longest)
            self._targets = self._target.draw(targets, random, configuration.data.longest)
        else:
            self._sources, self._targets = self._source.best(sources), self._target.best(targets)
        rows = (
            np.arange(len(self._sources))
            if self._weights is None
            else draw_rows(self._weights, random)
        )
        batches = plan(
            self._sources.lengths[rows],
            self._targets.lengths[rows],
            batch_tokens=configuration.training.batch_tokens,
            random=random,
        )
        self._plan = [rows[batch] for batch in batches]
        self._epoch = epoch

    def _in_words(self, pairs: Sequence[Pair]) -> tuple[Ragged, Ragged]:
        """The words of sources and targets, by their numbers."""
        sources = self._source.words((pair.source for pair in pairs), [pair.tags for pair in pairs])
        return sources, self._target.words(pair.target for pair in pairs)

    def _noisy(self, epoch: int) -> tuple[Ragged, Ragged, NDArray[np.bool_]]:
        """The words of a pass, and which rows noise has changed; a changed pair that is too long is not taken."""
        clean, clean_targets = self._words
        rows = np.arange(len(clean))
        if self._noise is None:
            return clean, clean_targets, np.zeros(len(clean), dtype=np.bool_)
        # Noise makes new words in each pass: memory stays bounded.
        for segmenter, count in zip((self._source, self._target), self._known_words, strict=True):
            segmenter.keep(count)
        noisy = self._noise.draw(Random(f"{self._configuration.seed} {epoch}"))
        sources, targets = self._in_words(list(noisy.values()))
        longest = self._configuration.data.longest
        fits = self._source.best(sources).lengths <= longest
        fits &= self._target.best(targets).lengths <= longest
        rows[np.array(list(noisy), dtype=np.int64)[fits]] = len(clean) + np.flatnonzero(fits)
        words = clean.then(sources).take(rows), clean_targets.then(targets).take(rows)
        return *words, rows >= len(clean)


def share(costs: NDArray[np.int64], rank: int, size: int) -> NDArray[np.int64]:
    """The positions that one of `size` processes takes of a batch whose pairs have `costs` tokens, in their order.

    Each sentence goes to the process that has the fewest tokens so far, the longest sentence first (Graham 1969,
    "Bounds on multiprocessing timing anomalies"). No two processes differ by more than the longest sentence.

    Example:
        >>> costs = np.array([9, 5, 4, 3, 2])
        >>> share(costs, 0, 2).tolist(), share(costs, 1, 2).tolist()
        ([0, 3], [1, 2, 4])
    """
    if size == 1:
        return np.arange(len(costs))
    loads = [(0, process) for process in range(size)]
    places = []
    for place in np.argsort(-costs, kind="stable"):
        load, process = loads[0]
        heapq.heapreplace(loads, (load + int(costs[place]), process))
        if process == rank:
            places.append(int(place))
    return np.array(sorted(places), dtype=np.int64)
