"""The layers of a Transformer, and how each sublayer is wrapped."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.heads import HeadMemory, MultiHeadAttention
from regard.attention.masks import causal
from regard.attention.positions import Rotary
from regard.translation.models.dropout import Dropout
from regard.translation.models.protocol import Looks
from regard.translation.models.transformer.settings import TransformerSettings
from regard.translation.models.transformer.state import Sources, TransformerEncoded

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
}


class FeedForward(nn.Module):
    """W2 f(W1 x + b1) + b2, position by position (equation 2).

    Gated it is W2 (f(W1 x + b1) * (W3 x + b3)) + b2 (Shazeer 2020, arXiv 2002.05202, equation 6).
    """

    def __init__(self, settings: TransformerSettings) -> None:
        super().__init__()
        width, inner, bias = settings.width, settings.feed_forward, settings.feed_forward_bias
        self.inner = nn.Linear(width, inner, bias=bias)
        self.gate = nn.Linear(width, inner, bias=bias) if settings.gated else None
        self.outer = nn.Linear(inner, width, bias=bias)
        self.activation = ACTIVATIONS[settings.activation]

    def forward(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        inner = self.activation(self.inner(x))
        output: Tensor = self.outer(inner if self.gate is None else inner * self.gate(x))
        return output


def norm_of(settings: TransformerSettings) -> Any:
    """An nn.LayerNorm, or one without mean and bias, nn.RMSNorm (Zhang and Sennrich 2019, arXiv 1910.07467)."""
    if settings.normalisation == "rms":
        return nn.RMSNorm(settings.width, eps=1e-6)
    return nn.LayerNorm(settings.width)


class Residual(nn.Module):
    """One sublayer's surroundings: x + dropout(f(norm(x))), or norm(x + dropout(f(x))) as in the paper."""

    def __init__(self, settings: TransformerSettings) -> None:
        super().__init__()
        self.norm = norm_of(settings)
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

    def read(
        self,
        name: str,
        attention: MultiHeadAttention,
        *what: Tensor,
        mask: Any,
        bias: Tensor | None,
    ) -> Tensor:
        reading, self.looks[name] = attention.read(*what, mask=mask, bias=bias)
        return reading


def _attend(
    watched: Watched | None,
    name: str,
    attention: MultiHeadAttention,
    *what: Tensor,
    mask: Any,
    bias: Tensor | None = None,
) -> Tensor:
    if watched is not None and watched.keeps(name):
        return watched.read(name, attention, *what, mask=mask, bias=bias)
    output: Tensor = attention(*what, mask=mask, bias=bias)
    return output


def _attention(settings: TransformerSettings, *, rotary: bool = False) -> MultiHeadAttention:
    return MultiHeadAttention(
        settings.width,
        settings.heads,
        d_head=settings.head_width,
        bias=settings.attention_bias,
        rotary=Rotary() if rotary else None,
    )


def _self_attention(settings: TransformerSettings) -> MultiHeadAttention:
    """Where words of one sentence stand to each other; those of two have no common places."""
    return _attention(settings, rotary=settings.positions == "rotary")


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward layer."""

    def __init__(self, settings: TransformerSettings, name: str) -> None:
        super().__init__()
        self.name = name
        self.self_attention = _self_attention(settings)
        self.self_residual = Residual(settings)
        self.feed_forward = FeedForward(settings)
        self.feed_forward_residual = Residual(settings)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None,
        watched: Watched | None = None,
        bias: Tensor | None = None,
    ) -> Tensor:
        name, attention = f"{self.name}.self", self.self_attention
        x = self.self_residual(
            x, lambda q: _attend(watched, name, attention, q, mask=mask, bias=bias)
        )
        output: Tensor = self.feed_forward_residual(x, self.feed_forward)
        return output


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention to the source, then the feed-forward layer."""

    def __init__(self, settings: TransformerSettings, name: str) -> None:
        super().__init__()
        self.name = name
        self.self_attention = _self_attention(settings)
        self.self_residual = Residual(settings)
        self.cross_attention = _attention(settings)
        self.cross_residual = Residual(settings)
        self.feed_forward = FeedForward(settings)
        self.feed_forward_residual = Residual(settings)

    def forward(
        self,
        x: Tensor,
        source: TransformerEncoded,
        watched: Watched | None = None,
        bias: Tensor | None = None,
    ) -> Tensor:
        x = self.self_residual(
            x,
            lambda q: _attend(
                watched,
                f"{self.name}.self",
                self.self_attention,
                q,
                mask=causal(align="start"),
                bias=bias,
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

    def step(
        self,
        x: Tensor,
        said: HeadMemory,
        source: HeadMemory,
        sources: Sources,
        bias: Tensor | None = None,
    ) -> Tensor:
        def read_said(q: Tensor) -> Tensor:
            self.self_attention.remember(q, memory=said)
            output: Tensor = self.self_attention(q, memory=said, bias=bias)
            return output

        def read_source(q: Tensor) -> Tensor:
            together = q.view(-1, sources.each, q.shape[-1])  # the hypotheses of a sentence
            reading: Tensor = self.cross_attention(together, memory=source, mask=sources.readable)
            return reading.view_as(q)

        x = self.self_residual(x, read_said)
        x = self.cross_residual(x, read_source)
        output: Tensor = self.feed_forward_residual(x, self.feed_forward)
        return output
