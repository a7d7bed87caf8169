"""Encoded sentences, and the decoder's state while it reads them."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.attention.memory.heads import HeadMemory
from regard.translation.models.recurrent.cells import CellState

__all__ = ["DecoderState", "Source"]


@dataclass(frozen=True)
class Source:
    """The encoded sentences, one row each.

    Attributes:
        states: The encoder's states, the values of attention.
        keys: The keys of attention: the states as `regard.attention.scores.prepare` or
            `MultiHeadAttention.remember` leave them; None without attention.
        readable: True where a sentence has a word; None where every position has one.
        first: The decoder's first state, a layer.
    """

    states: Float[Tensor, "batch source d_memory"]
    keys: Tensor | HeadMemory | None
    readable: Bool[Tensor, "batch 1 source"] | None
    first: tuple[CellState, ...]

    def select(self, rows: Int[Tensor, " kept"]) -> Source:
        """These rows, in this order; a row may be taken twice."""
        keys = self.keys
        if keys is not None:
            keys = keys.select(rows) if isinstance(keys, HeadMemory) else keys[rows]
        readable = None if self.readable is None else self.readable[rows]
        return Source(self.states[rows], keys, readable, _select(self.first, rows))


@dataclass(frozen=True)
class DecoderState:
    """The decoder between two words.

    Attributes:
        layers: The state of every layer.
        feed: An input of the next step from the step before, besides its state; None where there is none.
        source: The sentences it reads.
    """

    layers: tuple[CellState, ...]
    feed: Float[Tensor, "batch d_feed"] | None
    source: Source

    def select(self, rows: Int[Tensor, " kept"]) -> DecoderState:
        """These rows, in this order; a row may be taken twice."""
        feed = None if self.feed is None else self.feed[rows]
        return DecoderState(_select(self.layers, rows), feed, self.source.select(rows))


def _select(layers: tuple[CellState, ...], rows: Tensor) -> tuple[CellState, ...]:
    return tuple(tuple(part[rows] for part in layer) for layer in layers)
