"""The base class of recurrent decoders: layers of cells, run word by word."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.dropout import Dropout, keep
from regard.attention.looks.look import Look
from regard.attention.memory.heads import HeadMemory
from regard.translation.models.recurrent.attention import CrossAttention
from regard.translation.models.recurrent.cells import CellState, cells, new_cell
from regard.translation.models.recurrent.linear import new_linear
from regard.translation.models.recurrent.source import DecoderState, Source
from regard.translation.settings.recurrent import RecurrentSettings

__all__ = ["Decoder", "FixedVectorDecoder", "new_output_projection"]

Words = Float[Tensor, "target batch d_word"]
Hidden = Float[Tensor, "target batch width"]
Queries = Float[Tensor, "batch target d_query"]


class Decoder(nn.Module, ABC):
    """Layers of cells, the lowest of which may read a feed beside the word."""

    attention: CrossAttention | None

    def __init__(
        self,
        settings: RecurrentSettings,
        attention: CrossAttention | None = None,
        d_feed: int = 0,
    ) -> None:
        super().__init__()
        self.attention = attention
        width = settings.decoder_width
        below = [settings.embedding_width] + [width] * (settings.decoder_layers - 1)
        self.cells = nn.ModuleList(
            new_cell(settings.cell, d_input, width, 0 if layer else d_feed)
            for layer, d_input in enumerate(below)
        )
        self.dropout = Dropout(settings.dropout)

    def keys(self, states: Float[Tensor, "batch source d_memory"]) -> Tensor | HeadMemory | None:
        """The keys of its attention, computed once a sentence."""
        return None if self.attention is None else self.attention.keys(states)

    def start(self, source: Source) -> DecoderState:
        """Before the first word."""
        return DecoderState(source.first, self.first_feed(source), source)

    def first_feed(self, source: Source) -> Tensor | None:
        """The feed of the first step."""
        return None

    def forward(self, words: Words, source: Source) -> Hidden:
        """The output layer's input after each word of a known translation."""
        return self.unroll(words, source)[0]

    def look(self, words: Words, source: Source) -> Look | None:
        """The look of a known translation; None without attention."""
        if self.attention is None:
            return None
        return self.attention.look(self.unroll(words, source)[1], source)

    def contexts(self, queries: Queries, source: Source) -> Float[Tensor, "batch target d_memory"]:
        """The contexts of these queries."""
        if self.attention is None:
            raise TypeError("a decoder without attention reads no contexts")
        contexts: Tensor = self.attention(queries, source)
        return contexts

    @abstractmethod
    def unroll(self, words: Words, source: Source) -> tuple[Hidden, Queries]:
        """The output layer's input and the attention's queries, for all steps."""

    @abstractmethod
    def step(
        self, words: Float[Tensor, "batch d_word"], state: DecoderState
    ) -> tuple[Float[Tensor, "batch width"], DecoderState]:
        """The same for one word."""

    def project(self, words: Float[Tensor, "*batch d_word"]) -> Float[Tensor, "*batch gates"]:
        """The words' part of the lowest layer's gates."""
        return cells(self.cells)[0].project(words)

    def noises(self, words: Words) -> Iterator[list[Tensor]]:
        """For each step the dropout between the layers, drawn for all steps at once."""
        between = len(self.cells) - 1
        steps, rows = words.shape[:2]
        if not between or not self.training or not self.dropout.rate:
            return iter([[]] * steps)
        drawn = keep(
            words.new_empty(steps, between, rows, cells(self.cells)[0].d_state), self.dropout.rate
        )
        return iter([list(step.unbind(0)) for step in drawn.unbind(0)])

    def states(self, words: Words, source: Source) -> Float[Tensor, "target batch d_state"]:
        """The top layer's states after every step, where nothing is fed back."""
        state, states = source.first, []
        for step, noise in zip(self.project(words), self.noises(words), strict=True):
            state = self.advance(step, state, None, noise)
            states.append(state[-1][0])
        return torch.stack(states)

    def advance(
        self,
        projected: Float[Tensor, "batch gates"],
        layers: tuple[CellState, ...],
        feed: Tensor | None,
        noises: list[Tensor],
    ) -> tuple[CellState, ...]:
        """Every layer one step further."""
        after: list[CellState] = []
        for index, (cell, state) in enumerate(zip(cells(self.cells), layers, strict=True)):
            if index:
                below = after[-1][0]
                projected = cell.project(below * noises[index - 1] if noises else below)
            after.append(cell(projected, state, None if index else feed))
        return tuple(after)


class FixedVectorDecoder(Decoder):
    """No attention: the source is the first state and nothing else (arXiv 1409.3215, section 2).

    ``s_i = cell(y_{i-1}, s_{i-1})``; the output layer reads s_i.
    """

    def __init__(self, settings: RecurrentSettings) -> None:
        super().__init__(settings)
        self.output_projection = new_output_projection(settings)

    def unroll(self, words: Words, source: Source) -> tuple[Hidden, Queries]:
        states = self.states(words, source)
        return self.output_projection(states), states.transpose(0, 1)

    def step(self, words: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        noise = next(self.noises(words[None]))
        layers = self.advance(self.project(words), state.layers, None, noise)
        return self.output_projection(layers[-1][0]), DecoderState(layers, None, state.source)


def new_output_projection(settings: RecurrentSettings) -> nn.Module:
    """From the decoder's width to that of the output layer, where they differ."""
    if settings.hidden_width == settings.decoder_width:
        return nn.Identity()
    return new_linear(settings.decoder_width, settings.hidden_width, bias=False)
