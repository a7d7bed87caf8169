"""Recurrent decoders: layers of cells, run word by word, which look before they step, after it, or not at all."""

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.dropout import Dropout
from regard.translation.models.recurrent.attention import (
    CrossAttention,
    DecoderState,
    Source,
    new_attention,
)
from regard.translation.models.recurrent.cells import CellState, cells, new_cell, new_linear
from regard.translation.settings.recurrent import RecurrentSettings

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

    def start(self, source: Source) -> DecoderState:
        """Before the first word."""
        return DecoderState(source.first, self.first_feed(source), source)

    def first_feed(self, source: Source) -> Tensor | None:
        """The feed of the first step."""
        return None

    @abstractmethod
    def unroll(self, words: Words, source: Source) -> tuple[Hidden, Queries]:
        """The output layer's input and the attention's queries, for all steps of a known translation."""

    @abstractmethod
    def step(
        self, words: Float[Tensor, "batch d_word"], state: DecoderState
    ) -> tuple[Float[Tensor, "batch width"], DecoderState]:
        """The same for one word."""

    def project(self, words: Float[Tensor, "*batch d_word"]) -> Float[Tensor, "*batch gates"]:
        """The words' part of the lowest layer's gates."""
        projected: Tensor = cells(self.cells)[0].input_projection(words)
        return projected

    def states(self, words: Words, source: Source) -> Float[Tensor, "target batch d_state"]:
        """The top layer's states after every step, where nothing is fed back."""
        state, states = source.first, []
        for step in self.project(words):
            state = self.advance(step, state)
            states.append(state[-1][0])
        return torch.stack(states)

    def advance(
        self,
        projected: Float[Tensor, "batch gates"],
        layers: tuple[CellState, ...],
        feed: Tensor | None = None,
    ) -> tuple[CellState, ...]:
        """Every layer one step further."""
        after: list[CellState] = []
        for index, (cell, state) in enumerate(zip(cells(self.cells), layers, strict=True)):
            if index:
                projected = cell.input_projection(self.dropout(after[-1][0]))
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
        layers = self.advance(self.project(words), state.layers)
        return self.output_projection(layers[-1][0]), DecoderState(layers, None, state.source)


class BahdanauDecoder(Decoder):
    """Look with the state before, then step.

    ``c_i = attend(s_{i-1}, h)``, ``s_i = cell([y_{i-1} ; c_i], s_{i-1})``,
    ``t_i = tanh(W [s_i ; c_i ; y_{i-1}] + b)``

    Bahdanau et al. (arXiv 1409.0473, sections 3.1 and A.2.2); their deep output t_i is a maxout
    layer, ours a tanh of half the work. With several layers the top one asks and the lowest one
    reads the context.
    """

    attention: CrossAttention

    def __init__(self, settings: RecurrentSettings) -> None:
        super().__init__(settings, new_attention(settings), d_feed=settings.memory_width)
        read = settings.decoder_width + settings.memory_width + settings.embedding_width
        self.readout = new_linear(read, settings.hidden_width)

    def unroll(self, words: Words, source: Source) -> tuple[Hidden, Queries]:
        layers, queries, contexts, states = source.first, [], [], []
        for projected in self.project(words):
            queries.append(layers[-1][0])
            contexts.append(self.attention(queries[-1][:, None], source)[:, 0])
            layers = self.advance(projected, layers, contexts[-1])
            states.append(layers[-1][0])
        read = torch.cat([torch.stack(states), torch.stack(contexts), words], dim=-1)
        return torch.tanh(self.readout(read)), torch.stack(queries, dim=1)

    def step(self, words: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        context = self.attention(state.layers[-1][0][:, None], state.source)[:, 0]
        layers = self.advance(self.project(words), state.layers, context)
        read = torch.cat([layers[-1][0], context, words], dim=-1)
        return torch.tanh(self.readout(read)), DecoderState(layers, None, state.source)


class LuongDecoder(Decoder):
    """Step, then look with the state after.

    ``s_i = cell([y_{i-1} ; a_{i-1}], s_{i-1})``, ``c_i = attend(s_i, h)``,
    ``a_i = tanh(W [c_i ; s_i])``

    Luong et al. (arXiv 1508.04025, equation 5 and section 3.3; their h-tilde is our a). Without
    input feeding the attentional vector a is not fed back, and all steps look at once.
    """

    attention: CrossAttention

    def __init__(self, settings: RecurrentSettings) -> None:
        width = settings.decoder_width
        d_feed = width if settings.input_feeding else 0
        super().__init__(settings, new_attention(settings), d_feed)
        self.input_feeding = settings.input_feeding
        self.attentional = new_linear(settings.memory_width + width, width, bias=False)
        self.output_projection = new_output_projection(settings)

    def first_feed(self, source: Source) -> Tensor | None:
        return torch.zeros_like(source.first[-1][0]) if self.input_feeding else None

    def unroll(self, words: Words, source: Source) -> tuple[Hidden, Queries]:
        feed = self.first_feed(source)
        if feed is None:
            queries = self.states(words, source).transpose(0, 1)
            vector = self._attentional(queries, source).transpose(0, 1)
            return self.output_projection(vector), queries
        layers, states, vectors = source.first, [], []
        for projected in self.project(words):
            layers = self.advance(projected, layers, feed)
            states.append(layers[-1][0])
            feed = self._attentional(states[-1][:, None], source)[:, 0]
            vectors.append(feed)
        return self.output_projection(torch.stack(vectors)), torch.stack(states, dim=1)

    def step(self, words: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        layers = self.advance(self.project(words), state.layers, state.feed)
        vector = self._attentional(layers[-1][0][:, None], state.source)[:, 0]
        feed = vector if self.input_feeding else None
        return self.output_projection(vector), DecoderState(layers, feed, state.source)

    def _attentional(self, states: Tensor, source: Source) -> Tensor:
        context = self.attention(states, source)
        return torch.tanh(self.attentional(torch.cat([context, states], dim=-1)))


def new_output_projection(settings: RecurrentSettings) -> nn.Module:
    """From the decoder's width to that of the output layer, where they differ."""
    if settings.hidden_width == settings.decoder_width:
        return nn.Identity()
    return new_linear(settings.decoder_width, settings.hidden_width, bias=False)
