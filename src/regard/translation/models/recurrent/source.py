"""Encoded sentences, and the decoder's state while it reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jaxtyping import Bool, Float, Int
from torch import Tensor

from .cells import CellState

__all__ = ["DecoderState", "Source"]


@dataclass(frozen=True)
class Source:
    """What the encoder leaves to the decoder, one row a sentence."""

    states: Float[Tensor, "batch source d_memory"]
    readable: Bool[Tensor, "batch source"]
    first: tuple[CellState, ...]
    prepared: Any

    @property
    def rows(self) -> int:
        """How many sentences."""
        return self.states.shape[0]

    def select(self, rows: Int[Tensor, " kept"]) -> Source:
        """These rows, in this order; a row may be taken twice."""
        return Source(
            self.states[rows],
            self.readable[rows],
            _select(self.first, rows),
            self.prepared[rows],
        )


@dataclass(frozen=True)
class DecoderState:
    """The decoder between two words: the state of every layer, what it feeds itself, its source."""

    layers: tuple[CellState, ...]
    feed: Float[Tensor, "batch d_feed"] | None
    source: Source

    def select(self, rows: Int[Tensor, " kept"]) -> DecoderState:
        """These rows, in this order; a row may be taken twice."""
        feed = None if self.feed is None else self.feed[rows]
        return DecoderState(_select(self.layers, rows), feed, self.source.select(rows))


def _select(layers: tuple[CellState, ...], rows: Tensor) -> tuple[CellState, ...]:
    return tuple(tuple(part[rows] for part in layer) for layer in layers)
