"""The Transformer (Vaswani et al. 2017, arXiv 1706.03762) as an encoder-decoder of memories."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.attention.heads import HeadMemory, MultiHeadAttention
from regard.attention.masks import causal
from regard.attention.positions import sinusoidal
from regard.translation.models.dropout import Dropout
from regard.translation.models.protocol import Encoded, Looks, State, TranslationModel, own

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "silu": F.silu,
}


@dataclass(frozen=True)
class TransformerSettings:
    """The shape of a Transformer; the defaults are the small model for one machine."""

    encoder_layers: int = 3
    decoder_layers: int = 3
    width: int = 256
    heads: int = 4
    feed_forward: int = 1024
    activation: Literal["relu", "gelu", "silu"] = "relu"
    norm: Literal["pre", "post"] = "pre"
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"
    longest: int = 512
    tied: Literal["none", "target", "three_way"] = "three_way"
    dropout: float = 0.1


class FeedForward(nn.Module):
    """W2 f(W1 x + b1) + b2, position by position (equation 2)."""

    def __init__(self, settings: TransformerSettings) -> None:
        super().__init__()
        self.inner = nn.Linear(settings.width, settings.feed_forward)
        self.outer = nn.Linear(settings.feed_forward, settings.width)
        self.activation = ACTIVATIONS[settings.activation]

    def forward(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        output: Tensor = self.outer(self.activation(self.inner(x)))
        return output


class Residual(nn.Module):
    """One sublayer's surroundings: x + dropout(f(norm(x))), or norm(x + dropout(f(x))) as in the paper."""

    def __init__(self, settings: TransformerSettings) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(settings.width)
        self.dropout = Dropout(settings.dropout)
        self.before = settings.norm == "pre"

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        if self.before:
            output: Tensor = x + self.dropout(sublayer(self.norm(x)))
        else:
            output = self.norm(x + self.dropout(sublayer(x)))
        return output


class Watched:
    """Collects the looks of a forward pass by name; without one, attention never keeps any."""

    def __init__(self) -> None:
        self.looks: Looks = {}

    def read(self, name: str, attention: MultiHeadAttention, *what: Tensor, mask: Any) -> Tensor:
        reading, self.looks[name] = attention.read(*what, mask=mask)
        return reading


def _attend(
    watched: Watched | None, name: str, attention: MultiHeadAttention, *what: Tensor, mask: Any
) -> Tensor:
    if watched is not None:
        return watched.read(name, attention, *what, mask=mask)
    output: Tensor = attention(*what, mask=mask)
    return output


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward layer."""

    def __init__(self, settings: TransformerSettings, name: str) -> None:
        super().__init__()
        self.name = name
        self.self_attention = MultiHeadAttention(settings.width, settings.heads)
        self.self_residual = Residual(settings)
        self.feed_forward = FeedForward(settings)
        self.feed_forward_residual = Residual(settings)

    def forward(self, x: Tensor, mask: Tensor | None, watched: Watched | None = None) -> Tensor:
        x = self.self_residual(
            x, lambda q: _attend(watched, f"{self.name}.self", self.self_attention, q, mask=mask)
        )
        output: Tensor = self.feed_forward_residual(x, self.feed_forward)
        return output


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention to the source, then the feed-forward layer."""

    def __init__(self, settings: TransformerSettings, name: str) -> None:
        super().__init__()
        self.name = name
        self.self_attention = MultiHeadAttention(settings.width, settings.heads)
        self.self_residual = Residual(settings)
        self.cross_attention = MultiHeadAttention(settings.width, settings.heads)
        self.cross_residual = Residual(settings)
        self.feed_forward = FeedForward(settings)
        self.feed_forward_residual = Residual(settings)

    def forward(
        self, x: Tensor, source: TransformerEncoded, watched: Watched | None = None
    ) -> Tensor:
        x = self.self_residual(
            x,
            lambda q: _attend(
                watched, f"{self.name}.self", self.self_attention, q, mask=causal(align="start")
            ),
        )
        x = self.cross_residual(
            x,
            lambda q: _attend(
                watched,
                f"{self.name}.cross",
                self.cross_attention,
                q,
                source.states,
                mask=source.readable,
            ),
        )
        output: Tensor = self.feed_forward_residual(x, self.feed_forward)
        return output

    def step(self, x: Tensor, said: HeadMemory, source: HeadMemory, readable: Any) -> Tensor:
        def read_said(q: Tensor) -> Tensor:
            self.self_attention.remember(q, memory=said)
            output: Tensor = self.self_attention(q, memory=said)
            return output

        x = self.self_residual(x, read_said)
        x = self.cross_residual(x, lambda q: self.cross_attention(q, memory=source, mask=readable))
        output: Tensor = self.feed_forward_residual(x, self.feed_forward)
        return output


@dataclass
class TransformerEncoded:
    """The encoder's states and which of them may be read (None: all)."""

    states: Float[Tensor, "batch source width"]
    readable: Bool[Tensor, "batch 1 source"] | None

    @property
    def rows(self) -> int:
        return self.states.shape[0]

    def select(self, rows: Int[Tensor, " kept"]) -> TransformerEncoded:
        return TransformerEncoded(self.states[rows], _rows(self.readable, rows))


@dataclass
class TransformerState:
    """What each layer has said so far and what it reads of the source, projected once."""

    said: list[HeadMemory]
    source: list[HeadMemory]
    readable: Bool[Tensor, "batch 1 source"] | None
    position: int = 0

    def select(self, rows: Int[Tensor, " kept"]) -> TransformerState:
        return TransformerState(
            [memory.select(rows) for memory in self.said],
            [memory.select(rows) for memory in self.source],
            _rows(self.readable, rows),
            self.position,
        )


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
        if settings.tied == "three_way" and source_vocabulary != target_vocabulary:
            raise ValueError(
                f"three-way tied embeddings need one vocabulary, got {source_vocabulary} and {target_vocabulary}"
            )
        self.settings = settings
        self.padding = padding
        width = settings.width
        self.target_embedding = nn.Embedding(target_vocabulary, width)
        self.source_embedding = (
            self.target_embedding
            if settings.tied == "three_way"
            else nn.Embedding(source_vocabulary, width)
        )
        if settings.positions == "learned":
            self.positions = nn.Parameter(torch.empty(settings.longest, width))
        self.dropout = Dropout(settings.dropout)
        self.encoder = nn.ModuleList(
            EncoderLayer(settings, f"encoder.{i}") for i in range(settings.encoder_layers)
        )
        self.decoder = nn.ModuleList(
            DecoderLayer(settings, f"decoder.{i}") for i in range(settings.decoder_layers)
        )
        last = nn.LayerNorm if settings.norm == "pre" else nn.Identity
        self.encoder_norm = last(width)
        self.decoder_norm = last(width)
        self.output = nn.Linear(width, target_vocabulary, bias=False)
        if settings.tied != "none":
            self.output.weight = self.target_embedding.weight
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Glorot for matrices; embeddings so that, scaled by the root of the width, they have variance 1."""
        for name, parameter in self.named_parameters():
            if "embedding" in name or name in ("positions", "output.weight"):
                nn.init.normal_(parameter, std=self.settings.width**-0.5)
            elif parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    @property
    def longest(self) -> int | None:
        """The longest sentence learned positions allow; None where any length goes."""
        return self.settings.longest if self.settings.positions == "learned" else None

    def encode(
        self, source: Int[Tensor, "batch source"], lengths: Int[Tensor, " batch"]
    ) -> TransformerEncoded:
        return self._encode(source, lengths)

    def hidden(
        self,
        source: Int[Tensor, "batch source"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch target"],
    ) -> Float[Tensor, "batch target width"]:
        return self._decode(target, self._encode(source, lengths))

    def logits(self, hidden: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch vocabulary"]:
        output: Tensor = self.output(hidden)
        return output

    def start(self, encoded: Encoded) -> TransformerState:
        encoded = own(TransformerEncoded, encoded)
        return TransformerState(
            [layer.self_attention.remember(encoded.states[:, :0]) for layer in self._layers()],
            [layer.cross_attention.remember(encoded.states) for layer in self._layers()],
            encoded.readable,
        )

    def step(
        self, words: Int[Tensor, " batch"], state: State
    ) -> tuple[Float[Tensor, "batch vocabulary"], TransformerState]:
        state = own(TransformerState, state)
        x = self._embed(self.target_embedding, words[:, None], state.position)
        for layer, said, source in zip(self._layers(), state.said, state.source, strict=True):
            x = layer.step(x, said, source, state.readable)
        state.position += 1
        return self.logits(self.decoder_norm(x[:, 0])), state

    def looks(
        self,
        source: Int[Tensor, "batch source"],
        lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch target"],
    ) -> Looks:
        watched = Watched()
        self._decode(target, self._encode(source, lengths, watched), watched)
        return watched.looks

    def _encode(
        self, source: Tensor, lengths: Tensor, watched: Watched | None = None
    ) -> TransformerEncoded:
        readable = torch.arange(source.shape[1], device=source.device) < lengths[:, None]
        # Batches of sentences of one length are common, and reading without a mask is quicker.
        mask = None if bool(readable.all()) else readable[:, None]
        x = self._embed(self.source_embedding, source)
        for layer in self.encoder:
            x = layer(x, mask, watched)
        return TransformerEncoded(self.encoder_norm(x), mask)

    def _decode(
        self, target: Tensor, source: TransformerEncoded, watched: Watched | None = None
    ) -> Tensor:
        x = self._embed(self.target_embedding, target)
        for layer in self.decoder:
            x = layer(x, source, watched)
        output: Tensor = self.decoder_norm(x)
        return output

    def _layers(self) -> list[DecoderLayer]:
        return [layer for layer in self.decoder if isinstance(layer, DecoderLayer)]

    def _embed(self, embedding: nn.Embedding, words: Tensor, first: int = 0) -> Tensor:
        length, width = words.shape[1], self.settings.width
        x = embedding(words) * width**0.5
        last = first + length
        if self.settings.positions == "learned":
            if last > self.settings.longest:
                raise ValueError(
                    f"a sentence of {last} positions, this model has learned {self.settings.longest}"
                )
            places: Tensor = self.positions[first:last] * width**0.5
        else:
            places = sinusoidal(last, width)[first:].to(x)
        output: Tensor = self.dropout(x + places)
        return output


def _rows(mask: Tensor | None, rows: Tensor) -> Tensor | None:
    return None if mask is None else mask[rows]
