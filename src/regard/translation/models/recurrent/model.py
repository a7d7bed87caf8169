"""The recurrent translation model: encoder, bridge, decoder, output layer."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from ..protocol import Looks, TranslationModel
from .bridge import Bridge
from .decoder import BahdanauDecoder
from .encoder import Encoder, readable
from .settings import RecurrentConfiguration
from .source import DecoderState, Source

__all__ = ["RecurrentModel"]


class RecurrentModel(TranslationModel):
    def __init__(
        self,
        settings: RecurrentConfiguration,
        source_vocabulary: int,
        target_vocabulary: int,
        padding: int = 0,
    ) -> None:
        super().__init__()
        self.settings, self.padding = settings, padding
        width = settings.embedding_width
        if settings.tied == "three_way" and source_vocabulary != target_vocabulary:
            raise ValueError(
                "tied 'three_way' needs one vocabulary for both languages, not "
                f"{source_vocabulary} source and {target_vocabulary} target words: "
                "train a joint tokenizer, or choose tied 'target'"
            )
        self.source_embedding = self._embedding(source_vocabulary, width)
        if settings.tied != "three_way":
            self.target_embedding = self._embedding(target_vocabulary, width)
        self.encoder = Encoder(settings)
        self.bridge = Bridge(settings)
        self.decoder = BahdanauDecoder(settings)
        self.output_bias = nn.Parameter(torch.zeros(target_vocabulary))
        if settings.tied == "none":
            self.output_weight = nn.Parameter(
                torch.randn(target_vocabulary, settings.hidden_width) * settings.hidden_width**-0.5
            )

    def _embedding(self, vocabulary: int, width: int) -> nn.Embedding:
        embedding = nn.Embedding(vocabulary, width, padding_idx=self.padding)
        nn.init.normal_(embedding.weight, std=width**-0.5)
        with torch.no_grad():
            embedding.weight[self.padding].zero_()
        return embedding

    def _dropped(self, x: Tensor) -> Tensor:
        return functional.dropout(x, self.settings.dropout, self.training)

    def _target_words(self, words: Tensor) -> Tensor:
        tied = self.settings.tied == "three_way"
        embedding = self.source_embedding if tied else self.target_embedding
        return self._dropped(embedding(words))

    def encode(
        self, source: Int[Tensor, "batch source"], lengths: Int[Tensor, " batch"]
    ) -> Source:
        states, last = self.encoder(self._dropped(self.source_embedding(source)), lengths)
        states = self._dropped(states)
        return Source(
            states,
            readable(lengths, source.shape[1]),
            self.bridge(last),
            self.decoder.attention.prepare(states),
        )

    def hidden(
        self,
        source: Int[Tensor, "batch source"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch target"],
    ) -> Float[Tensor, "batch target width"]:
        words = self._target_words(target.t())
        return self._dropped(self.decoder(words, self.encode(source, lengths))).transpose(0, 1)

    def logits(self, hidden: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch vocabulary"]:
        return functional.linear(hidden, self._output_weight(), self.output_bias)

    def _output_weight(self) -> Tensor:
        if self.settings.tied == "none":
            return self.output_weight
        tied = self.settings.tied == "three_way"
        return (self.source_embedding if tied else self.target_embedding).weight

    def start(self, encoded: Source) -> DecoderState:
        return DecoderState(encoded.first, None, encoded)

    def step(
        self, words: Int[Tensor, " batch"], state: DecoderState
    ) -> tuple[Float[Tensor, "batch vocabulary"], DecoderState]:
        hidden, state = self.decoder.step(self._target_words(words), state)
        return self.logits(self._dropped(hidden)), state

    def looks(self, source, lengths, target) -> Looks:
        raise NotImplementedError
