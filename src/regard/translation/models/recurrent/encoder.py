"""The recurrent encoder: sentences in, one state a word out; and from its last states to the decoder's first."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.attention.dropout import Dropout
from regard.translation.models.protocol import Lengths
from regard.translation.models.recurrent.cells import (
    Cell,
    CellState,
    cells,
    new_cell,
    new_linear,
)
from regard.translation.settings.recurrent import RecurrentSettings


@dataclass(frozen=True)
class Packing:
    """Where the words of a padded batch are.

    The same order as torch.nn.utils.rnn.PackedSequence; the gradients of packing, of the steps and
    of unpacking are one copy each here, where those of torch.nn.GRU grow with the square of the
    length on a CPU.

    Attributes:
        order: Sentences by length, longest first; equals keep their order.
        sizes: How many sentences have a word at each step; never 0.
        places: Position of each packed word in the flattened (batch x source) rows.
        here: (batch, 1, source) True where a sentence has a word; None where all have one.
        shape: Batch and source length of the padded form.
    """

    order: Int[Tensor, " batch"]
    sizes: list[int]
    places: Int[Tensor, " words"]
    here: Bool[Tensor, "batch 1 source"] | None
    shape: tuple[int, int]

    @classmethod
    def of(cls, lengths: Lengths, longest: int) -> Packing:
        """The packing of sentences of these lengths, padded to `longest`."""
        ordered, order = torch.sort(lengths, descending=True, stable=True)
        step = torch.arange(longest, device=lengths.device)
        sizes = [size for size in (step[:, None] < ordered).sum(1).tolist() if size]
        places = (order * longest + step[:, None])[step[:, None] < ordered]
        here = None if len(places) == len(order) * longest else (step < lengths[:, None])[:, None]
        return cls(order, sizes, places, here, (len(lengths), longest))

    def pack(self, padded: Float[Tensor, "batch source width"]) -> Float[Tensor, "words width"]:
        """The words alone."""
        return padded.flatten(0, 1).index_select(0, self.places)

    def unpack(self, packed: Float[Tensor, "words width"]) -> Float[Tensor, "batch source width"]:
        """Back into rows of sentences, 0 on padding."""
        rows, longest = self.shape
        padded = packed.new_zeros(rows * longest, packed.shape[-1])
        return padded.index_copy(0, self.places, packed).view(rows, longest, packed.shape[-1])

    def restore(self, ordered: Float[Tensor, "some width"]) -> Float[Tensor, "batch width"]:
        """One row a sentence, from longest first to the batch's order; 0 for empty sentences."""
        rows = ordered.new_zeros(self.shape[0], ordered.shape[-1])
        return rows.index_copy(0, self.order[: len(ordered)], ordered)


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
    steps = cell.input_projection(words).split(packing.sizes)
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
    steps = cell.input_projection(words).split(packing.sizes)
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


class Bridge(nn.Module):
    """The decoder's first state, a layer.

    "linear": ``s_0 = tanh(W h + b)`` where h is the last state of the encoder's top layer, both
    directions side by side (arXiv 1409.0473, appendix A.2.2, reads the backward one alone); an
    LSTM's memory is projected alike, without the tanh. "copy": the encoder's state of the same
    layer (arXiv 1409.3215). "zero": nothing.
    """

    def __init__(self, settings: RecurrentSettings) -> None:
        super().__init__()
        self.kind = settings.bridge
        self.layers, self.width = settings.decoder_layers, settings.decoder_width
        if self.kind == "linear":
            self.state = self._projections(settings)
            self.memory = self._projections(settings) if settings.cell == "lstm" else None

    @staticmethod
    def _projections(settings: RecurrentSettings) -> nn.ModuleList:
        return nn.ModuleList(
            new_linear(settings.memory_width, settings.decoder_width)
            for _ in range(settings.decoder_layers)
        )

    def forward(self, last: tuple[CellState, ...]) -> tuple[CellState, ...]:
        """`last` holds, a layer of the encoder, its last state (and memory)."""
        if self.kind == "copy":
            return last
        if self.kind == "zero":
            nothing = tuple(part.new_zeros(part.shape[0], self.width) for part in last[-1])
            return (nothing,) * self.layers
        states: list[Tensor] = [torch.tanh(project(last[-1][0])) for project in self.state]
        if self.memory is None:
            return tuple((state,) for state in states)
        memories: list[Tensor] = [project(last[-1][1]) for project in self.memory]
        return tuple(zip(states, memories, strict=True))
