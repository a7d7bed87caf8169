"""The recurrent encoder: sentences in, one state a word out."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.dropout import Dropout
from regard.translation.models.recurrent.cells import Cell, CellState, cells, new_cell
from regard.translation.models.recurrent.packing import Packing
from regard.translation.settings.recurrent import RecurrentSettings

__all__ = ["Encoder"]


class Encoder(nn.Module):
    """Layers of GRU or LSTM over a packed batch, left to right and, where asked, right to left.

    ``h_j = [forwards_j ; backwards_j]`` (arXiv 1409.0473, section 3.2); a layer above the first
    reads both. Packing leaves the padding out, so that the way back begins at each sentence's own
    last word. A sentence of length 0 has states of 0.
    """

    def __init__(self, settings: RecurrentSettings) -> None:
        super().__init__()
        self.width = settings.encoder_width
        self.forwards = self._cells(settings)
        self.backwards = self._cells(settings) if settings.bidirectional else None
        self.dropout = Dropout(settings.dropout)

    @staticmethod
    def _cells(settings: RecurrentSettings) -> nn.ModuleList:
        return nn.ModuleList(
            new_cell(
                settings.cell,
                settings.memory_width if layer else settings.embedding_width,
                settings.encoder_width,
            )
            for layer in range(settings.encoder_layers)
        )

    def forward(
        self, words: Float[Tensor, "batch source d_word"], packing: Packing
    ) -> tuple[Float[Tensor, "batch source d_memory"], tuple[CellState, ...]]:
        """The top layer's state at every position and, a layer, the last state of each sentence."""
        states, last = packing.pack(words), []
        for layer, onwards in enumerate(cells(self.forwards)):
            read = self.dropout(states) if layer else states
            ways = [_forwards(onwards, read, packing)]
            if self.backwards is not None:
                ways.append(_backwards(cells(self.backwards)[layer], read, packing))
            states = torch.cat([way for way, _ in ways], dim=-1)
            parts = zip(*(end for _, end in ways), strict=True)
            last.append(tuple(packing.restore(torch.cat(part, dim=-1)) for part in parts))
        return packing.unpack(states), tuple(last)


def _forwards(cell: Cell, words: Tensor, packing: Packing) -> tuple[Tensor, CellState]:
    """All states, packed, and the last one of each sentence that is not empty."""
    steps = cell.project(words).split(packing.sizes)
    state = cell.nothing(words, packing.sizes[0] if packing.sizes else 0)
    states: list[Tensor] = []
    ended: list[CellState] = []
    for gates in steps:
        if len(gates) < len(state[0]):
            parts = [part.split([len(gates), len(part) - len(gates)]) for part in state]
            state, done = tuple(part[0] for part in parts), tuple(part[1] for part in parts)
            ended.append(done)
        state = cell(gates, state, None)
        states.append(state[0])
    ended.append(state)
    ends = tuple(torch.cat(part) for part in zip(*reversed(ended), strict=True))
    return torch.cat(states) if states else state[0], ends


def _backwards(cell: Cell, words: Tensor, packing: Packing) -> tuple[Tensor, CellState]:
    """The same from the right: a sentence joins in at its last word."""
    steps = cell.project(words).split(packing.sizes)
    state = cell.nothing(words, 0)
    states: list[Tensor] = []
    for gates in reversed(steps):
        joining = len(gates) - len(state[0])
        if joining:
            new = cell.nothing(words, joining)
            state = tuple(torch.cat(pair) for pair in zip(state, new, strict=True))
        state = cell(gates, state, None)
        states.append(state[0])
    return torch.cat(states[::-1]) if states else state[0], state
