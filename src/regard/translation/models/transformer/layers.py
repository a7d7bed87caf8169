"""The layers of a Transformer, and how each sublayer is wrapped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.heads import HeadMemory, MultiHeadAttention
from regard.attention.masks import causal
from regard.translation.models.dropout import Dropout
from regard.translation.models.protocol import Looks
from regard.translation.models.transformer.settings import TransformerSettings
from regard.translation.models.transformer.state import Sources, TransformerEncoded

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "silu": F.silu,
}


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
    """Collects the looks of a forward pass, all or one, by name; without it, attention never keeps any."""

    def __init__(self, only: str | None = None) -> None:
        self.looks: Looks = {}
        self.only = only

    def keeps(self, name: str) -> bool:
        return self.only in (None, name)

    def read(self, name: str, attention: MultiHeadAttention, *what: Tensor, mask: Any) -> Tensor:
        reading, self.looks[name] = attention.read(*what, mask=mask)
        return reading


def _attend(
    watched: Watched | None, name: str, attention: MultiHeadAttention, *what: Tensor, mask: Any
) -> Tensor:
    if watched is not None and watched.keeps(name):
        return watched.read(name, attention, *what, mask=mask)
    output: Tensor = attention(*what, mask=mask)
    return output


def _attention(settings: TransformerSettings) -> MultiHeadAttention:
    return MultiHeadAttention(settings.width, settings.heads, bias=settings.attention_bias)


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward layer."""

    def __init__(self, settings: TransformerSettings, name: str) -> None:
        super().__init__()
        self.name = name
        self.self_attention = _attention(settings)
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
        self.self_attention = _attention(settings)
        self.self_residual = Residual(settings)
        self.cross_attention = _attention(settings)
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

    def step(self, x: Tensor, said: HeadMemory, source: HeadMemory, sources: Sources) -> Tensor:
        def read_said(q: Tensor) -> Tensor:
            self.self_attention.remember(q, memory=said)
            output: Tensor = self.self_attention(q, memory=said)
            return output

        def read_source(q: Tensor) -> Tensor:
            together = q.view(-1, sources.each, q.shape[-1])  # the hypotheses of a sentence
            reading: Tensor = self.cross_attention(together, memory=source, mask=sources.readable)
            return reading.view_as(q)

        x = self.self_residual(x, read_said)
        x = self.cross_residual(x, read_source)
        output: Tensor = self.feed_forward_residual(x, self.feed_forward)
        return output
