"""The recurrent decoder, a word at a time or all words of a known translation."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from .attention import CrossAttention
from .cells import CellState, new_cell
from .settings import RecurrentConfiguration
from .source import DecoderState, Source

__all__ = ["BahdanauDecoder"]


class Stack(nn.Module):
    """Recurrent layers, one above the other. The lowest one is given its gates already projected."""

    def __init__(self, settings: RecurrentConfiguration, d_feed: int) -> None:
        super().__init__()
        width = settings.decoder_width
        self.cells = nn.ModuleList(
            new_cell(
                settings.cell,
                width if layer else settings.embedding_width,
                width,
                0 if layer else d_feed,
            )
            for layer in range(settings.decoder_layers)
        )
        self.dropout = settings.dropout


class BahdanauDecoder(nn.Module):
    """Look first, then step.

    ``c_i = attend(s_{i-1}, h)``, ``s_i = cell([y_{i-1}; c_i], s_{i-1})``,
    ``t_i = tanh(W [s_i; c_i; y_{i-1}] + b)`` (arXiv 1409.0473, sections 3.1 and A.2.2, where the
    deep output is a maxout layer; tanh here).
    """

    def __init__(self, settings: RecurrentConfiguration) -> None:
        super().__init__()
        self.attention = CrossAttention(settings)
        self.cells = nn.ModuleList(
            new_cell(
                settings.cell,
                settings.decoder_width if layer else settings.embedding_width,
                settings.decoder_width,
                0 if layer else settings.memory_width,
            )
            for layer in range(settings.decoder_layers)
        )
        self.readout = nn.Linear(
            settings.decoder_width + settings.memory_width + settings.embedding_width,
            settings.hidden_width,
        )
        nn.init.xavier_uniform_(self.readout.weight)
        nn.init.zeros_(self.readout.bias)

    def advance(self, projected, layers, source):
        context, weights = self.attention(layers[-1][0], source)
        after = []
        below = None
        for index, (cell, state) in enumerate(zip(self.cells, layers, strict=True)):
            gates = projected if index == 0 else cell.project(below)
            state = cell(gates, state, context if index == 0 else None)
            below = state[0]
            after.append(state)
        return tuple(after), context, weights

    def forward(self, words: Float[Tensor, "target batch d_word"], source: Source) -> Tensor:
        projected = self.cells[0].project(words)
        layers = source.first
        states, contexts = [], []
        for gates in projected.unbind(0):
            layers, context, _ = self.advance(gates, layers, source)
            states.append(layers[-1][0])
            contexts.append(context)
        return torch.tanh(
            self.readout(torch.cat([torch.stack(states), torch.stack(contexts), words], -1))
        )

    def step(self, words, state: DecoderState):
        layers, context, _ = self.advance(self.cells[0].project(words), state.layers, state.source)
        hidden = torch.tanh(self.readout(torch.cat([layers[-1][0], context, words], -1)))
        return hidden, DecoderState(layers, None, state.source)
