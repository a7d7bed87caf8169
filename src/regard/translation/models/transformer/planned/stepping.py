"""The decoder of a plan, one word a row and step."""

from __future__ import annotations

from typing import Self

import numpy as np
import torch
from torch import Tensor

from regard.translation.models.transformer.planned import passes
from regard.translation.models.transformer.planned.packing import Array
from regard.translation.models.transformer.planned.permission import Planned
from regard.translation.models.transformer.planned.plan import Plan, PlannedEncoded, ids

_STEPS = 32  # room for so many words at first


class Said:
    """What every layer has said: keys and values stay where they were written.

    Rows that change places, as a beam's do at each step, only change who their ancestors are:
    `came` has for each row and step the row in which it was written.
    """

    def __init__(self, layers: int, rows: int, width: int) -> None:
        self.steps = 0
        self.entries: Array = np.empty((layers, _STEPS, rows, 2 * width), np.float32)
        self.came: Array = np.zeros((rows, _STEPS), np.int64)

    def grow(self, rows: int) -> None:
        """One step more, of so many rows."""
        self.steps += 1
        layers, steps, slots, width = self.entries.shape
        if self.steps > steps or rows > slots:
            room = 2 * steps if self.steps > steps else steps
            entries = np.empty((layers, room, max(slots, rows), width), np.float32)
            entries[:, :steps, :slots] = self.entries
            self.entries = entries
            came = np.zeros((len(self.came), room), np.int64)
            came[:, :steps] = self.came
            self.came = came

    def select(self, rows: Array) -> None:
        self.came = self.came[rows]


class PlannedState(Planned):
    """The decoder after some words; `first` and `last` say where each row's source lies."""

    def __init__(self, plan: Plan, encoded: PlannedEncoded) -> None:
        self.plan, self.sources = plan, plan.sources(encoded)
        self.first, self.last = encoded.first, encoded.last
        rows = len(encoded.first)
        self.said = Said(len(plan.decoder.places), rows, plan.width)
        self.lists: Array = np.empty((0, 0), np.int64)
        self.own_list: Array = np.zeros(rows, np.int64)
        self._furnish(rows, max(_STEPS, encoded.longest))

    def select(self, rows: Tensor) -> Self:
        """These rows; like a step, it uses the state up."""
        chosen = rows.numpy()
        self.said.select(chosen)
        self.first, self.last = self.first[chosen], self.last[chosen]
        self.own_list = self.own_list[chosen]
        return self

    def narrow(self, lists: Tensor, sentences: Tensor) -> None:
        """From the next step on, the logits of the words of each row's list alone; -inf for -1, no word."""
        ids(lists[lists != -1], self.plan.output)
        self.lists = lists.contiguous().numpy()
        self.own_list = ids(sentences, self.lists)
        self._logits = torch.empty(len(self.first), lists.shape[1])

    def step(self, words: Tensor) -> Tensor:
        """The logits of the next word, which are good until the next step."""
        plan, said, rows = self.plan, self.said, len(words)
        read = ids(words, plan.writes)
        said.grow(rows)
        if rows > len(self._logits) or said.steps > self._desk.room.shape[1]:
            self._furnish(rows, max(2 * said.steps, self._desk.room.shape[1]))
        logits = self._logits[:rows]
        passes.step(
            *(read, np.full(rows, said.steps - 1), self.first, self.last, self.sources),
            *(said.entries, said.steps, said.came, plan.writes, plan.positions(said.steps)),
            *(plan.decoder.weights, plan.decoder.places, plan.decoder.end),
            *(self.lists, self.own_list, plan.output, plan.output_bias),
            *(tuple(plan.shape), tuple(self._desk), logits.view(-1).numpy()),
        )
        return logits

    def _furnish(self, rows: int, positions: int) -> None:
        self._desk = self.plan.desk(rows, positions)
        self._logits = torch.empty(rows, self.lists.shape[1] or self.plan.shape.vocabulary)
