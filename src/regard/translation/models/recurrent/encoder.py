"""The recurrent encoder: sentences in, one state a word out; and from its last states to the decoder's first."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.attention.dropout import Dropout
from regard.translation.models.recurrent.cells import Cell, CellState, cells, new_cell, new_linear
from regard.translation.settings.recurrent import RecurrentSettings


class Encoder(nn.Module):
    """Layers of GRU or LSTM, left to right and, where asked, right to left.

    ``h_j = [forwards_j ; backwards_j]`` (arXiv 1409.0473, section 3.2); a layer above the first
    reads both. Padding changes no state, so that the way back begins at each sentence's own
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
        above = [settings.memory_width] * (settings.encoder_layers - 1)
        return nn.ModuleList(
            new_cell(settings.cell, d_input, settings.encoder_width)
            for d_input in (settings.embedding_width, *above)
        )

    def forward(
        self,
        words: Float[Tensor, "batch source d_word"],
        readable: Bool[Tensor, "batch source"] | None,
    ) -> tuple[Float[Tensor, "batch source d_memory"], tuple[CellState, ...]]:
        """The top layer's state at every position, 0 on padding, and, a layer, the last state of each sentence.

        `readable` is True where a sentence has a word; None where every position has one.
        """
        states, finals = words, []
        for layer, onwards in enumerate(cells(self.forwards)):
            read = self.dropout(states) if layer else states
            ways = [_run(onwards, read, readable, 1)]
            if self.backwards is not None:
                ways.append(_run(cells(self.backwards)[layer], read, readable, -1))
            states = torch.cat([way for way, _ in ways], dim=-1)
            pairs = zip(*(final for _, final in ways), strict=True)
            finals.append(tuple(torch.cat(state, dim=-1) for state in pairs))
        return states if readable is None else states * readable[..., None], tuple(finals)


def _run(cell: Cell, words: Tensor, readable: Tensor | None, way: int) -> tuple[Tensor, CellState]:
    """The states at all positions and the last one, from the left (way 1) or from the right (-1)."""
    steps = cell.input_projection(words).unbind(1)[::way]
    state, states = cell.nothing(words, len(words)), [words.new_zeros(len(words), 0, cell.d_state)]
    present = [None] * len(steps) if readable is None else readable[..., None].unbind(1)[::way]
    for gates, real in zip(steps, present, strict=True):
        following = cell(gates, state, None)
        pairs = zip(following, state, strict=True)
        state = following if real is None else tuple(torch.where(real, *pair) for pair in pairs)
        states.append(state[0][:, None])
    return torch.cat(states[:1] + states[1:][::way], dim=1), state


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

    def forward(self, finals: tuple[CellState, ...]) -> tuple[CellState, ...]:
        """`finals` holds, a layer of the encoder, its last state (and memory)."""
        if self.kind == "copy":
            return finals
        if self.kind == "zero":
            nothing = tuple(state.new_zeros(state.shape[0], self.width) for state in finals[-1])
            return (nothing,) * self.layers
        states: list[Tensor] = [torch.tanh(project(finals[-1][0])) for project in self.state]
        if self.memory is None:
            return tuple((state,) for state in states)
        memories: list[Tensor] = [project(finals[-1][1]) for project in self.memory]
        return tuple(zip(states, memories, strict=True))
