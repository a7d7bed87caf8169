"""The Transformer (Vaswani et al. 2017, arXiv 1706.03762) as an encoder-decoder of memories."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.dropout import Dropout
from regard.attention.heads import new_norm
from regard.translation.models.protocol import (
    Lengths,
    SourceIds,
    State,
    TargetIds,
    TranslationModel,
    Watched,
    Words,
    as_state,
)
from regard.translation.models.transformer.layers import (
    DecoderLayer,
    EncoderLayer,
    TransformerEncoded,
    TransformerState,
)
from regard.translation.models.transformer.positions import SCHEMES, Scheme
from regard.translation.settings.transformer import TransformerSettings

# Parameters that are drawn with the variance of an embedding.
_SMALL = ("positions", "output.weight", "encoder_bias.weight", "decoder_bias.weight")


class Transformer(TranslationModel):
    """Encoder-decoder of attention layers, with cached decoding."""

    def __init__(
        self,
        settings: TransformerSettings,
        source_vocabulary: int,
        target_vocabulary: int,
        padding: int = 0,
    ) -> None:
        super().__init__()
        shared = settings.tied in ("three_way", "embeddings")
        if shared and source_vocabulary != target_vocabulary:
            raise ValueError(
                f"{settings.tied.replace('_', '-')} tied embeddings need one vocabulary, "
                f"got {source_vocabulary} and {target_vocabulary}"
            )
        self.settings = settings
        self.padding = padding
        width = settings.width
        self.target_embedding = nn.Embedding(target_vocabulary, width)
        self.source_embedding = (
            self.target_embedding if shared else nn.Embedding(source_vocabulary, width)
        )
        scheme = self._scheme
        if scheme.learned:
            self.longest = settings.longest
            self.positions = nn.Parameter(torch.empty(settings.longest, width))
        self.encoder_bias = scheme.bias and scheme.bias(settings, True)
        self.decoder_bias = scheme.bias and scheme.bias(settings, False)
        self.dropout = Dropout(settings.dropout)
        self.encoder = nn.ModuleList(
            EncoderLayer(settings, f"encoder.{i}") for i in range(settings.encoder_layers)
        )
        self.decoder = nn.ModuleList(
            DecoderLayer(settings, f"decoder.{i}") for i in range(settings.decoder_layers)
        )
        self.encoder_norm, self.decoder_norm = (
            new_norm(width, settings.normalisation) if settings.norm == "pre" else nn.Identity()
            for _ in range(2)
        )
        self.output = nn.Linear(width, target_vocabulary, bias=settings.output_bias)
        if settings.tied in ("three_way", "target"):
            self.output.weight = self.target_embedding.weight
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Glorot for matrices; embeddings so that, scaled by the root of the width, they have variance 1."""
        for name, parameter in self.named_parameters():
            if "embedding" in name or name in _SMALL:
                nn.init.normal_(parameter, std=self.settings.width**-0.5)
            elif parameter.dim() > 1 and ".score." not in name:  # scores draw their own
                nn.init.xavier_uniform_(parameter)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    @property
    def _scheme(self) -> Scheme:
        return SCHEMES[self.settings.positions]

    @property
    def adds_positions(self) -> bool:
        """Whether positions are vectors added to the words, or none, and not in the layers."""
        return not self._scheme.in_layers

    def encode(
        self, source: SourceIds, lengths: Lengths, watched: Watched | None = None
    ) -> TransformerEncoded:
        """The encoder's states of the sources."""
        readable = torch.arange(source.shape[1], device=source.device) < lengths[:, None]
        # Batches of sentences of one length are common, and reading without a mask is quicker.
        mask = None if bool(readable.all()) else readable[:, None]
        x = self._embed(self.source_embedding, source)
        bias = _bias(self.encoder_bias, x)
        for layer in self.encoder:
            x = layer(x, mask, watched, bias)
        return TransformerEncoded(self.encoder_norm(x), mask)

    def hidden(
        self, source: SourceIds, lengths: Lengths, target: TargetIds, watched: Watched | None = None
    ) -> Float[Tensor, "batch target width"]:
        encoded = self.encode(source, lengths, watched)
        x = self._embed(self.target_embedding, target)
        bias = _bias(self.decoder_bias, x)
        for layer in self.decoder:
            x = layer(x, encoded, watched, bias)
            if watched is not None and watched.may_end:
                break
        output: Tensor = self.decoder_norm(x)
        return output

    def begin(self, source: SourceIds, lengths: Lengths) -> TransformerState:
        states, readable = self.encode(source, lengths)
        return TransformerState(
            [layer.self_attention.remember(states[:, :0]) for layer in self._layers()],
            [layer.cross_attention.remember(states) for layer in self._layers()],
            readable,
        )

    def advance(
        self, words: Words, state: State
    ) -> tuple[Float[Tensor, "batch width"], TransformerState]:
        state = as_state(TransformerState, state)
        x = self._embed(self.target_embedding, words[:, None], state.position)
        bias = _bias(self.decoder_bias, x, state.position)
        memories = zip(self._layers(), state.targets, state.sources, strict=True)
        for layer, target, source in memories:
            x = layer.step(x, target, source, state, bias)
        state.position += 1
        hidden: Tensor = self.decoder_norm(x[:, 0])
        return hidden, state

    def _layers(self) -> list[DecoderLayer]:
        return [layer for layer in self.decoder if isinstance(layer, DecoderLayer)]

    def _embed(self, embedding: nn.Embedding, words: Tensor, start: int = 0) -> Tensor:
        width, stop = self.settings.width, start + words.shape[1]
        scale = width**0.5 if self.settings.scale_embedding else 1.0
        x = embedding(words) * scale
        if self._scheme.learned:
            if stop > self.settings.longest:
                raise ValueError(
                    f"a sentence of {stop} positions, this model has learned {self.settings.longest}"
                )
            x = x + self.positions[start:stop] * scale
        elif self._scheme.vectors is not None:
            x = x + self._scheme.vectors(stop, width)[start:].to(x)
        output: Tensor = self.dropout(x)
        return output


def _bias(scheme: Callable[..., Tensor] | None, x: Tensor, start: int = 0) -> Tensor | None:
    """The bias of words that stand from place `start` on and read all up to themselves."""
    if scheme is None:
        return None
    bias = scheme(x.shape[1], start + x.shape[1], start)
    return bias.to(x)[None]
