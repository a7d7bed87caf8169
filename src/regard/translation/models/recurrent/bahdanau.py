"""The decoder that looks before it steps."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.translation.models.recurrent.attention import new_attention
from regard.translation.models.recurrent.decoder import Decoder, Hidden, Queries, Words
from regard.translation.models.recurrent.linear import new_linear
from regard.translation.models.recurrent.source import DecoderState, Source
from regard.translation.settings.recurrent import RecurrentSettings

__all__ = ["BahdanauDecoder"]


class BahdanauDecoder(Decoder):
    """Look with the state before, then step.

    ``c_i = attend(s_{i-1}, h)``, ``s_i = cell([y_{i-1} ; c_i], s_{i-1})``,
    ``t_i = tanh(W [s_i ; c_i ; y_{i-1}] + b)``

    Bahdanau et al. (arXiv 1409.0473, sections 3.1 and A.2.2); their deep output t_i is a maxout
    layer, ours a tanh of half the work. With several layers the top one asks and the lowest one
    reads the context.
    """

    def __init__(self, settings: RecurrentSettings) -> None:
        super().__init__(settings, new_attention(settings), d_feed=settings.memory_width)
        read = settings.decoder_width + settings.memory_width + settings.embedding_width
        self.readout = new_linear(read, settings.hidden_width)

    def unroll(self, words: Words, source: Source) -> tuple[Hidden, Queries]:
        layers, queries, contexts, states = source.first, [], [], []
        for projected, noise in zip(self.project(words), self.noises(words), strict=True):
            queries.append(layers[-1][0])
            contexts.append(self.contexts(queries[-1][:, None], source)[:, 0])
            layers = self.advance(projected, layers, contexts[-1], noise)
            states.append(layers[-1][0])
        read = torch.cat([torch.stack(states), torch.stack(contexts), words], dim=-1)
        return torch.tanh(self.readout(read)), torch.stack(queries, dim=1)

    def step(self, words: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        context = self.contexts(state.layers[-1][0][:, None], state.source)[:, 0]
        noise = next(self.noises(words[None]))
        layers = self.advance(self.project(words), state.layers, context, noise)
        read = torch.cat([layers[-1][0], context, words], dim=-1)
        return torch.tanh(self.readout(read)), DecoderState(layers, None, state.source)
