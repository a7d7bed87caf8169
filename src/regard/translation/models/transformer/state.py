"""The state of a Transformer's decoder: its source and its cache."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.attention.heads import HeadMemory


@dataclass
class TransformerEncoded:
    """The encoder's states and which of them may be read (None: all)."""

    states: Float[Tensor, "batch source width"]
    readable: Bool[Tensor, "batch 1 source"] | None


@dataclass
class Sources:
    """Each layer's keys and values of the source sentences, projected once and kept once a sentence.

    The hypotheses of a sentence are rows side by side, `each` of them for every sentence. They read
    one memory, as so many queries of it, so that a beam copies no source when its rows change places.
    """

    memories: list[HeadMemory]
    readable: Bool[Tensor, "sentences 1 source"] | None
    each: int = 1

    def select(self, rows: Int[Tensor, " kept"]) -> Sources:
        kept, counts = torch.unique_consecutive(rows // self.each, return_counts=True)
        each = int(counts[0]) if len(counts) else 1
        if not bool((counts == each).all()):  # no longer as many for each: a memory for every row
            kept, each = rows // self.each, 1
        if len(kept) == self._sentences and bool((kept[1:] > kept[:-1]).all()):
            return Sources(self.memories, self.readable, each)
        memories = [memory.select(kept) for memory in self.memories]
        return Sources(memories, _rows(self.readable, kept), each)

    @property
    def _sentences(self) -> int:
        return self.memories[0].keys.shape[0]


@dataclass
class TransformerState:
    """Each layer's cache of past words, and the source it reads."""

    said: list[HeadMemory]
    sources: Sources
    position: int = 0

    def select(self, rows: Int[Tensor, " kept"]) -> TransformerState:
        said = [memory.select(rows) for memory in self.said]
        return TransformerState(said, self.sources.select(rows), self.position)


def _rows(mask: Tensor | None, rows: Tensor) -> Tensor | None:
    return None if mask is None else mask[rows]
