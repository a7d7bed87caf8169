"""The decoder of compiled search: one word a row and step."""

from __future__ import annotations

from typing import Self

import numpy as np
import torch
from torch import Tensor

from regard.translation.engines.compiled import forward_loops
from regard.translation.engines.compiled.model import CompiledEncoded, CompiledModel, ids
from regard.translation.engines.compiled.weights import Array

_STEPS = 32  # room for so many words at first


class DecoderCache:
    """Keys and values of every layer; they are not moved.

    A beam's rows are reordered at each step. Only `came` changes then: for each row and step, the row in
    which its entry was written.
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


class CompiledState:
    """The decoder after some words; `first` and `last` say where each row's source lies."""

    def __init__(self, model: CompiledModel, encoded: CompiledEncoded) -> None:
        self.model, self.sources = model, model.sources(encoded)
        self.first, self.last = encoded.first, encoded.last
        rows = len(encoded.first)
        self.cache = DecoderCache(len(model.decoder.places), rows, model.width)
        self.lists: Array = np.empty((0, 0), np.int64)
        self.own_list: Array = np.zeros(rows, np.int64)
        self._allocate(rows, max(_STEPS, encoded.longest))

    def select(self, rows: Tensor) -> Self:
        """These rows; like a step, it uses the state up."""
        chosen = rows.numpy()
        self.cache.select(chosen)
        self.first, self.last = self.first[chosen], self.last[chosen]
        self.own_list = self.own_list[chosen]
        return self

    def narrow(self, lists: Tensor, sentences: Tensor) -> None:
        """From the next step on, the logits of the words of each row's list alone; -inf for -1, no word."""
        ids(lists[lists != -1], self.model.output)
        self.lists = lists.contiguous().numpy()
        self.own_list = ids(sentences, self.lists)
        self._logits = torch.empty(len(self.first), lists.shape[1])

    def step(self, words: Tensor) -> Tensor:
        """The logits of the next word, which are good until the next step."""
        model, cache, rows = self.model, self.cache, len(words)
        read = ids(words, model.writes)
        cache.grow(rows)
        if rows > len(self._logits) or cache.steps > self._workspace.room.shape[1]:
            self._allocate(rows, max(2 * cache.steps, self._workspace.room.shape[1]))
        logits = self._logits[:rows]
        forward_loops.step(
            *(read, np.full(rows, cache.steps - 1), self.first, self.last, self.sources),
            *(cache.entries, cache.steps, cache.came, model.writes, model.positions(cache.steps)),
            *(model.decoder.weights, model.decoder.places, model.decoder.end),
            *(self.lists, self.own_list, model.output, model.output_bias),
            *(tuple(model.shape), tuple(self._workspace), logits.view(-1).numpy()),
        )
        return logits

    def _allocate(self, rows: int, positions: int) -> None:
        self._workspace = self.model.workspace(rows, positions)
        self._logits = torch.empty(rows, self.lists.shape[1] or self.model.shape.vocabulary)
