"""The decoder of compiled search: one word a row and step."""

from __future__ import annotations

from typing import Self

import numpy as np
import torch
from torch import Tensor

from regard.translation.engines.compiled import forward_loops
from regard.translation.engines.compiled.model import Array, CompiledModel, ids

_STEPS = 32  # room for so many words at first
_NO_LISTS = np.empty((1, 0), np.int64)


class CompiledState:
    """The decoder after some words; `first` and `last` say where each row's source lies.

    Keys and values of every layer are not moved: a beam's rows are reordered at each step, and only `came`
    changes then. For each row and step it has the row in which its entry was written.
    """

    def __init__(self, model: CompiledModel, source: Tensor, lengths: Tensor) -> None:
        self.model, self.steps, rows = model, 0, len(source)
        self.sources, self.first, self.last = model.encode(source, lengths)
        layers = len(model.decoder.places)
        self.entries: Array = np.empty((layers, _STEPS, rows, 2 * model.width), np.float32)
        self.came: Array = np.zeros((rows, _STEPS), np.int64)
        self._logits = torch.empty(0, 0)
        self._workspace = model.workspace(rows, max(_STEPS, source.shape[1]))

    def select(self, rows: Tensor) -> Self:
        """These rows; like a step, it uses the state up."""
        chosen = rows.numpy()
        self.came, self.first, self.last = self.came[chosen], self.first[chosen], self.last[chosen]
        return self

    def step(self, words: Tensor, lists: Array = _NO_LISTS, own: Array = _NO_LISTS[0]) -> Tensor:
        """The logits of the next word, which are good until the next step.

        With lists, those of the words of each row's own list; -inf for -1, no word.
        """
        model, rows = self.model, len(words)
        read = ids(words, model.writes)
        self._grow(rows)
        columns = lists.shape[1] or model.shape.vocabulary
        if rows > len(self._logits) or columns != self._logits.shape[1]:
            self._logits = torch.empty(rows, columns)
        logits = self._logits[:rows]
        forward_loops.step(
            *(read, np.full(rows, self.steps - 1), self.first, self.last, self.sources),
            (self.entries, self.steps, self.came),
            (model.writes, model.positions(self.steps)),
            tuple(model.decoder),
            (lists, own, *model.output),
            (tuple(model.shape), tuple(self._workspace)),
            logits.view(-1).numpy(),
        )
        return logits

    def _grow(self, rows: int) -> None:
        """One step more, of so many rows."""
        self.steps += 1
        layers, steps, slots, width = self.entries.shape
        read = self._workspace.scores.shape[1]
        if rows * self.model.width > len(self._workspace.x) or self.steps > read:
            self._workspace = self.model.workspace(rows, max(2 * self.steps, read))
        if self.steps > steps or rows > slots:
            room = 2 * steps if self.steps > steps else steps
            entries = np.empty((layers, room, max(slots, rows), width), np.float32)
            entries[:, :steps, :slots] = self.entries
            came = np.zeros((len(self.came), room), np.int64)
            came[:, :steps] = self.came
            self.entries, self.came = entries, came
