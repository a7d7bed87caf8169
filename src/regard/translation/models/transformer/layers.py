"""The layers of a translating Transformer: blocks whose attention can be watched, and their steps."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor

from regard.attention.blocks import Residual, TransformerBlock
from regard.attention.heads import HeadMemory, MultiHeadAttention
from regard.attention.masks import causal
from regard.attention.positions import Rotary
from regard.translation.models.protocol import Looks
from regard.translation.models.transformer.state import Sources, TransformerEncoded
from regard.translation.settings.transformer import TransformerSettings


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


class _Layer(TransformerBlock):
    """A block of these settings, whose looks have names that begin with its own."""

    def __init__(self, settings: TransformerSettings, name: str, *, cross: bool) -> None:
        super().__init__(
            settings.width,
            settings.heads,
            settings.feed_forward,
            cross=cross,
            norm=settings.norm,
            normalisation=settings.normalisation,
            activation=settings.activation,
            gated=settings.gated,
            dropout=settings.dropout,
            attention_bias=settings.attention_bias,
            feed_forward_bias=settings.feed_forward_bias,
            head_width=settings.head_width,
            rotary=Rotary() if settings.positions == "rotary" else None,
        )
        self.name = name

    def _attend(
        self,
        watched: Watched | None,
        name: str,
        attention: MultiHeadAttention,
        *what: Tensor,
        mask: Any,
        bias: Tensor | None = None,
    ) -> Tensor:
        name = f"{self.name}.{name}"
        if watched is not None and watched.keeps(name):
            return watched.read(name, attention, *what, mask=mask, bias=bias)
        output: Tensor = attention(*what, mask=mask, bias=bias)
        return output


class EncoderLayer(_Layer):
    """Self-attention, then the feed-forward layer."""

    def __init__(self, settings: TransformerSettings, name: str) -> None:
        super().__init__(settings, name, cross=False)

    def forward(  # type: ignore[override]
        self,
        x: Tensor,
        mask: Tensor | None,
        watched: Watched | None = None,
        bias: Tensor | None = None,
    ) -> Tensor:
        return self._through(x, None, partial(self._attend, watched), mask, None, bias)


class DecoderLayer(_Layer):
    """Causal self-attention, cross-attention to the source, then the feed-forward layer."""

    cross_attention: MultiHeadAttention
    cross_residual: Residual

    def __init__(self, settings: TransformerSettings, name: str) -> None:
        super().__init__(settings, name, cross=True)

    def forward(  # type: ignore[override]
        self,
        x: Tensor,
        source: TransformerEncoded,
        watched: Watched | None = None,
        bias: Tensor | None = None,
    ) -> Tensor:
        attend = partial(self._attend, watched)
        rule = causal(align="start")
        return self._through(x, source.states, attend, rule, source.readable, bias)

    def step(
        self,
        x: Tensor,
        said: HeadMemory,
        source: HeadMemory,
        sources: Sources,
        bias: Tensor | None = None,
    ) -> Tensor:
        def attend(
            name: str, attention: MultiHeadAttention, q: Tensor, *_: Any, **how: Any
        ) -> Tensor:
            if name == "self":
                attention.remember(q, memory=said)
                output: Tensor = attention(q, memory=said, bias=how["bias"])
                return output
            together = q.view(-1, sources.each, q.shape[-1])  # the hypotheses of a sentence
            reading: Tensor = attention(together, memory=source, mask=sources.readable)
            return reading.view_as(q)

        return self._through(x, None, attend, None, None, bias)
