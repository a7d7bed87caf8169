"""Passes over a corpus: which batch comes at which place, decided by the seed alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from regard.translation.runs import Tokenizers
from regard.translation.text.batches import Batch, collate, plan
from regard.translation.text.corpora import Pair
from regard.translation.text.subwords import Segmenter


class Epochs:
    """Batches of any pass. Pass n depends on the seed and n only, so that training can go on anywhere."""

    def __init__(
        self,
        pairs: Sequence[Pair],
        tokenizers: Tokenizers,
        *,
        batch_tokens: int,
        sampling: float,
        seed: int,
        longest: int | None = None,
    ) -> None:
        self._source = Segmenter(tokenizers.source, (pair.source for pair in pairs), sampling)
        self._target = Segmenter(tokenizers.target, (pair.target for pair in pairs), sampling)
        self._batch_tokens = batch_tokens
        self._seed = seed
        self._longest = longest
        self._sampled = sampling > 0
        self._epoch = -1

    def batches(self, epoch: int) -> int:
        """How many batches a pass has."""
        self._prepare(epoch)
        return len(self._plan)

    def batch(self, epoch: int, number: int) -> Batch:
        """One batch of a pass."""
        self._prepare(epoch)
        return collate(self._sources, self._targets, self._plan[number])

    def largest(self) -> Batch:
        """The batch with the most positions in the first pass: what memory must hold."""
        self._prepare(0)
        batches = (collate(self._sources, self._targets, rows) for rows in self._plan[:50])
        return max(batches, key=lambda batch: batch.source.numel() + batch.target_in.numel())

    def _prepare(self, epoch: int) -> None:
        if epoch == self._epoch:
            return
        random = np.random.default_rng([self._seed, epoch])
        if self._sampled:
            self._sources = self._source.draw(random, self._longest)
            self._targets = self._target.draw(random, self._longest)
        else:
            self._sources, self._targets = self._source.best(), self._target.best()
        self._plan = plan(
            self._sources.lengths,
            self._targets.lengths,
            batch_tokens=self._batch_tokens,
            random=random,
        )
        self._epoch = epoch
