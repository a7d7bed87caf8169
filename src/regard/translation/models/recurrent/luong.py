"""The decoder that looks after it stepped."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.translation.models.recurrent.attention import new_attention
from regard.translation.models.recurrent.decoder import (
    Decoder,
    Hidden,
    Queries,
    Words,
    new_output_projection,
)
from regard.translation.models.recurrent.linear import new_linear
from regard.translation.models.recurrent.source import DecoderState, Source
from regard.translation.settings.recurrent import RecurrentSettings

__all__ = ["LuongDecoder"]


class LuongDecoder(Decoder):
    """Step, then look with the state after.

    ``s_i = cell([y_{i-1} ; a_{i-1}], s_{i-1})``, ``c_i = attend(s_i, h)``,
    ``a_i = tanh(W [c_i ; s_i])``

    Luong et al. (arXiv 1508.04025, equation 5 and section 3.3; their h-tilde is our a). Without
    input feeding the attentional vector a is not fed back, and all steps look at once.
    """

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
        for projected, noise in zip(self.project(words), self.noises(words), strict=True):
            layers = self.advance(projected, layers, feed, noise)
            states.append(layers[-1][0])
            feed = self._attentional(states[-1][:, None], source)[:, 0]
            vectors.append(feed)
        return self.output_projection(torch.stack(vectors)), torch.stack(states, dim=1)

    def step(self, words: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        noise = next(self.noises(words[None]))
        layers = self.advance(self.project(words), state.layers, state.feed, noise)
        vector = self._attentional(layers[-1][0][:, None], state.source)[:, 0]
        feed = vector if self.input_feeding else None
        return self.output_projection(vector), DecoderState(layers, feed, state.source)

    def _attentional(self, states: Tensor, source: Source) -> Tensor:
        context = self.contexts(states, source)
        return torch.tanh(self.attentional(torch.cat([context, states], dim=-1)))
