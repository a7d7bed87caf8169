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
    output_projection: nn.Module

    def __init__(
        self, settings: RecurrentSettings, attention: CrossAttention | None = None, d_feed: int = 0
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
        return DecoderState(source.initial, None, source)

    def unroll(self, words: Words, source: Source) -> tuple[Hidden, Queries]:
        """The output layer's input and the attention's queries, for all steps of a known translation."""
        state, vectors, queries = self.start(source), [], []
        for projected in self.project(words):
            vector, query, state = self.turn(projected, state)
            vectors.append(vector)
            queries.append(query)
        return self.read(torch.stack(vectors), words, source), torch.stack(queries, dim=1)

    def step(
        self, words: Float[Tensor, "batch d_word"], state: DecoderState
    ) -> tuple[Float[Tensor, "batch width"], DecoderState]:
        """The same for one word."""
        vector, _, following = self.turn(self.project(words), state)
        return self.read(vector[None], words[None], state.source)[0], following

    @abstractmethod
    def turn(
        self, projected: Float[Tensor, "batch gates"], state: DecoderState
    ) -> tuple[Tensor, Tensor, DecoderState]:
        """One step: the vector that `read` takes, the attention's query, and the state after."""

    def read(
        self, vectors: Float[Tensor, "target batch d_vector"], words: Words, source: Source
    ) -> Hidden:
        """The output layer's input after each step."""
        hidden: Tensor = self.output_projection(vectors)
        return hidden

    def project(self, words: Float[Tensor, "*batch d_word"]) -> Float[Tensor, "*batch gates"]:
        projected: Tensor = cells(self.cells)[0].input_projection(words)
        return projected

    def advance(
        self,
        projected: Float[Tensor, "batch gates"],
        layers: tuple[CellState, ...],
        feed: Tensor | None = None,
    ) -> tuple[CellState, ...]:
        states: list[CellState] = []
        for index, (cell, state) in enumerate(zip(cells(self.cells), layers, strict=True)):
            if index:
                projected = cell.input_projection(self.dropout(states[-1][0]))
            states.append(cell(projected, state, None if index else feed))
        return tuple(states)


class FixedVectorDecoder(Decoder):
    """No attention: the source is the first state and nothing else (arXiv 1409.3215, section 2).

    ``s_i = cell(y_{i-1}, s_{i-1})``; the output layer reads s_i.
    """

    def __init__(self, settings: RecurrentSettings) -> None:
        super().__init__(settings)
        self.output_projection = new_output_projection(settings)

    def turn(self, projected: Tensor, state: DecoderState) -> tuple[Tensor, Tensor, DecoderState]:
        layers = self.advance(projected, state.layers)
        return layers[-1][0], layers[-1][0], DecoderState(layers, None, state.source)


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

    def turn(self, projected: Tensor, state: DecoderState) -> tuple[Tensor, Tensor, DecoderState]:
        query = state.layers[-1][0]
        context = self.attention(query[:, None], state.source)[:, 0]
        layers = self.advance(projected, state.layers, context)
        vector = torch.cat([layers[-1][0], context], dim=-1)
        return vector, query, DecoderState(layers, None, state.source)

    def read(self, vectors: Tensor, words: Words, source: Source) -> Hidden:
        return torch.tanh(self.readout(torch.cat([vectors, words], dim=-1)))


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

    def start(self, source: Source) -> DecoderState:
        feed = torch.zeros_like(source.initial[-1][0]) if self.input_feeding else None
        return DecoderState(source.initial, feed, source)

    def turn(self, projected: Tensor, state: DecoderState) -> tuple[Tensor, Tensor, DecoderState]:
        layers = self.advance(projected, state.layers, state.feed)
        query, feed = layers[-1][0], None
        if self.input_feeding:
            feed = self._attentional(query[:, None], state.source)[:, 0]
        return query if feed is None else feed, query, DecoderState(layers, feed, state.source)

    def read(self, vectors: Tensor, words: Words, source: Source) -> Hidden:
        if not self.input_feeding:
            vectors = self._attentional(vectors.transpose(0, 1), source).transpose(0, 1)
        return super().read(vectors, words, source)

    def _attentional(self, states: Tensor, source: Source) -> Tensor:
        context = self.attention(states, source)
        return torch.tanh(self.attentional(torch.cat([context, states], dim=-1)))


def new_output_projection(settings: RecurrentSettings) -> nn.Module:
    """From the decoder's width to that of the output layer, where they differ."""
    if settings.hidden_width == settings.decoder_width:
        return nn.Identity()
    return new_linear(settings.decoder_width, settings.hidden_width, bias=False)
