"""Batches by token budget: sentences of similar length together, in an order that depends on one seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from regard.translation.text.subwords import Ragged
from regard.translation.text.tokenizer import BOS, EOS, PAD


@dataclass(frozen=True)
class Batch:
    """Padded sentence pairs. The decoder reads `target_in` and predicts `target_out`."""

    source: Int[Tensor, "batch source"]
    source_lengths: Int[Tensor, " batch"]
    target_in: Int[Tensor, "batch target"]
    target_out: Int[Tensor, "batch target"]
    target_lengths: Int[Tensor, " batch"]
    rows: NDArray[np.int64]

    @property
    def target_tokens(self) -> int:
        return int(self.target_lengths.sum())

    def to(self, device: torch.device) -> Batch:
        return Batch(
            self.source.to(device),
            self.source_lengths.to(device),
            self.target_in.to(device),
            self.target_out.to(device),
            self.target_lengths.to(device),
            self.rows,
        )


def plan(
    source_lengths: NDArray[np.int64],
    target_lengths: NDArray[np.int64],
    *,
    batch_tokens: int,
    random: np.random.Generator,
    pool: int = 100,
) -> list[NDArray[np.int64]]:
    """The batches of one pass, as rows of the corpus, in the order of training.

    A batch holds at most `batch_tokens` positions, padding included, on its longer side (a sentence longer than
    that is a batch of its own). Sentences are shuffled, sorted by length within pools of `pool` batches' worth, cut
    into batches, and the batches shuffled again. So there is little padding, and each pass has other batches.
    """
    longer = np.maximum(source_lengths, target_lengths) + 1
    order = random.permutation(len(longer))
    share = max(1, int(batch_tokens / max(1.0, float(longer.mean())) * pool)) if len(longer) else 1
    batches: list[NDArray[np.int64]] = []
    for start in range(0, len(order), share):
        rows = order[start : start + share]
        rows = rows[np.lexsort((source_lengths[rows], target_lengths[rows], longer[rows]))]
        batches += _cut(rows, longer, batch_tokens)
    return [batches[i] for i in random.permutation(len(batches))]


def collate(source: Ragged, target: Ragged, rows: NDArray[np.int64]) -> Batch:
    """The batch of some rows of a corpus; sources and targets end with the end-of-sentence id."""
    sources = _padded([source[i] for i in rows], end=True)
    read = _padded([target[i] for i in rows], begin=True)
    predicted = _padded([target[i] for i in rows], end=True)
    return Batch(
        source=sources,
        source_lengths=torch.from_numpy(source.lengths[rows] + 1),
        target_in=read,
        target_out=predicted,
        target_lengths=torch.from_numpy(target.lengths[rows] + 1),
        rows=rows,
    )


def sources(
    lines: Sequence[Sequence[int]],
) -> tuple[Int[Tensor, "batch source"], Int[Tensor, " batch"]]:
    """Encoded sentences as a padded tensor and their lengths, each ended with the end-of-sentence id."""
    padded = _padded([np.asarray(line, dtype=np.int64) for line in lines], end=True)
    return padded, torch.tensor([len(line) + 1 for line in lines])


def targets(
    lines: Sequence[Sequence[int]],
) -> tuple[Int[Tensor, "batch target"], Int[Tensor, " batch"]]:
    """Encoded sentences as a padded tensor and their lengths, each beginning with the begin-of-sentence id."""
    padded = _padded([np.asarray(line, dtype=np.int64) for line in lines], begin=True)
    return padded, torch.tensor([len(line) + 1 for line in lines])


def _padded(
    rows: Sequence[NDArray[np.int32] | NDArray[np.int64]], *, begin: bool = False, end: bool = False
) -> Int[Tensor, "batch length"]:
    longest = max((len(row) for row in rows), default=0) + begin + end
    table = np.full((len(rows), longest), PAD, dtype=np.int64)
    for line, row in zip(table, rows, strict=True):
        line[begin : begin + len(row)] = row
        if begin:
            line[0] = BOS
        if end:
            line[begin + len(row)] = EOS
    return torch.from_numpy(table)


def _cut(
    rows: NDArray[np.int64], longer: NDArray[np.int64], batch_tokens: int
) -> list[NDArray[np.int64]]:
    batches, start = [], 0
    for end in range(1, len(rows) + 1):
        # Rows are sorted: the last one is the longest so far.
        if end == len(rows) or (end + 1 - start) * longer[rows[end]] > batch_tokens:
            batches.append(rows[start:end])
            start = end
    return batches
