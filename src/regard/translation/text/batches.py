"""Batches by token budget: sentences of similar length together, in an order that depends on one seed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from regard.translation.text.subwords import Ragged
from regard.translation.text.tokenizer import BOS, EOS, PAD

T = TypeVar("T")


@dataclass(frozen=True)
class Batch:
    """Padded sentence pairs. The decoder reads `target_in` and predicts `target_out`.

    `rows` are those of the corpus, and -1 for a pair that noise has changed.
    """

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
        tensors = {name: each.to(device) for name, each in vars(self).items() if name != "rows"}
        return Batch(**tensors, rows=self.rows)

    def twice(self) -> Batch:
        """The same pairs, followed by themselves."""
        tensors = {n: torch.cat([each, each]) for n, each in vars(self).items() if n != "rows"}
        return Batch(**tensors, rows=np.tile(self.rows, 2))


def draw_rows(weights: NDArray[np.float64], random: np.random.Generator) -> NDArray[np.int64]:
    """The rows that a pass takes. A row of weight 2.3 occurs twice, and a third time with probability 0.3.

    >>> draw_rows(np.array([2.0, 1.0]), np.random.default_rng(1)).tolist()
    [0, 0, 1]
    """
    times = np.floor(weights)
    times += random.random(len(weights)) < weights - times
    if len(times) and not times.any():  # with small weights and few rows, a pass still has a row
        times[random.integers(len(times))] = 1
    return np.repeat(np.arange(len(weights)), times.astype(np.int64))


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

    def fits(batch: list[int], row: int) -> bool:
        # Rows are sorted: the last one is the longest.
        return (len(batch) + 1) * int(longer[row]) <= batch_tokens

    order = random.permutation(len(longer))
    share = max(1, int(batch_tokens / max(1.0, float(longer.mean())) * pool)) if len(longer) else 1
    batches: list[NDArray[np.int64]] = []
    for start in range(0, len(order), share):
        rows = order[start : start + share]
        rows = rows[np.lexsort((source_lengths[rows], target_lengths[rows], longer[rows]))]
        batches += [np.array(batch) for batch in grouped(rows.tolist(), fits)]
    return [batches[i] for i in random.permutation(len(batches))]


def grouped(rows: Iterable[T], fits: Callable[[list[T], T], bool]) -> Iterator[list[T]]:
    """Rows in their order, as many together as fit; one that does not fit with any is a group of its own.

    >>> list(grouped([3, 4, 9, 5], lambda group, row: sum(group) + row <= 7))
    [[3, 4], [9], [5]]
    """
    group: list[T] = []
    for row in rows:
        if group and not fits(group, row):
            yield group
            group = []
        group.append(row)
    if group:
        yield group


def collate(source: Ragged, target: Ragged, rows: NDArray[np.int64]) -> Batch:
    """The batch of some rows of a corpus; sources and targets end with the end-of-sentence id."""
    read, source_lengths = sources([source[i] for i in rows])
    target_in, target_lengths = targets([target[i] for i in rows])
    target_out, _ = sources([target[i] for i in rows])
    return Batch(read, source_lengths, target_in, target_out, target_lengths, rows)


Lines = Sequence[Sequence[int] | NDArray[np.int32]]


def sources(lines: Lines) -> tuple[Int[Tensor, "batch source"], Int[Tensor, " batch"]]:
    """Encoded sentences as a padded tensor and their lengths, each ended with the end-of-sentence id."""
    table, lengths = _padded(lines)
    table[np.arange(len(lines)), lengths] = EOS
    return torch.from_numpy(table), torch.from_numpy(lengths + 1)


def targets(lines: Lines) -> tuple[Int[Tensor, "batch target"], Int[Tensor, " batch"]]:
    """Encoded sentences as a padded tensor and their lengths, each beginning with the begin-of-sentence id."""
    table, lengths = _padded(lines)
    table = np.roll(table, 1, axis=1)
    table[:, 0] = BOS
    return torch.from_numpy(table), torch.from_numpy(lengths + 1)


def _padded(lines: Lines) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """A table with at least one place of padding after each line, and the lengths of the lines."""
    lengths = np.array([len(line) for line in lines], dtype=np.int64)
    table = np.full((len(lines), lengths.max(initial=0) + 1), PAD, dtype=np.int64)
    for row, line in zip(table, lines, strict=True):
        row[: len(line)] = line
    return table, lengths
