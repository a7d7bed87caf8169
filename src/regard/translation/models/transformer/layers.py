"""The layers of a translating Transformer: blocks whose attention can be watched, their steps and their state."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.attention.blocks import Residual, TransformerBlock
from regard.attention.heads import HeadMemory, MultiHeadAttention
from regard.attention.masks import causal
from regard.translation.models.protocol import Watched
from regard.translation.models.transformer.positions import SCHEMES
from regard.translation.settings.transformer import TransformerSettings


class TransformerEncoded(NamedTuple):
    """The encoder's states and which of them may be read (None: all)."""

    states: Float[Tensor, "batch source width"]
    readable: Bool[Tensor, "batch 1 source"] | None


@dataclass
class TransformerState:
    """Each layer's cache of past words, and its keys and values of the source sentences.

    The hypotheses of a sentence are rows side by side, `per_sentence` of them. They read
    one memory of the source, as so many queries of it, so that a beam copies no source when its rows change places.
    """

    targets: list[HeadMemory]
    sources: list[HeadMemory]
    readable: Bool[Tensor, "sentences 1 source"] | None
    per_sentence: int = 1
    position: int = 0

    def select(self, rows: Int[Tensor, " kept"]) -> TransformerState:
        selected = replace(self, targets=[memory.select(rows) for memory in self.targets])
        sentences, counts = torch.unique_consecutive(rows // self.per_sentence, return_counts=True)
        selected.per_sentence = int(counts[0]) if len(counts) else 1
        # No longer as many of each: a memory for every row.
        if not bool((counts == selected.per_sentence).all()):
            sentences, selected.per_sentence = rows // self.per_sentence, 1
        if len(sentences) < len(self.sources[0].keys) or bool(
            (sentences[1:] <= sentences[:-1]).any()
        ):
            selected.sources = [memory.select(sentences) for memory in self.sources]
            selected.readable = None if self.readable is None else self.readable[sentences]
        return selected


class _Layer(TransformerBlock):
    """A block of these settings, whose looks have names that begin with its own."""

    cross: ClassVar[bool]  # whether it reads the source

    def __init__(self, settings: TransformerSettings, name: str) -> None:
        rotary = SCHEMES[settings.positions].rotary
        super().__init__(
            settings.width,
            settings.heads,
            settings.feed_forward,
            cross=self.cross,
            norm=settings.norm,
            normalisation=settings.normalisation,
            activation=settings.activation,
            gated=settings.gated,
            dropout=settings.dropout,
            bias=settings.attention_bias,
            feed_forward_bias=settings.feed_forward_bias,
            d_head=settings.head_width,
            score=settings.score,
            normaliser=settings.normaliser,
            rotary=rotary and rotary(),
        )
        self.name = name

    def _attend(
        self,
        watched: Watched | None,
        name: str,
        attention: MultiHeadAttention,
        *of: Any,
        **how: Any,
    ) -> Tensor:
        name = f"{self.name}.{name}"
        if watched is None or not watched.wants(name):
            output: Tensor = attention(*of, **how)
        else:
            output, watched.looks[name] = attention.read(*of, **how)
        return output


class EncoderLayer(_Layer):
    """Self-attention, then the feed-forward layer."""

    cross = False

    def forward(  # type: ignore[override]
        self,
        x: Float[Tensor, "batch source width"],
        mask: Bool[Tensor, "..."] | None = None,
        watched: Watched | None = None,
        bias: Float[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "batch source width"]:
        """The states of the source.

        Args:
            x: the states before this layer.
            mask: what may be read, ``(batch, 1, source)`` for padding; None for all.
            watched: stores the looks.
            bias: added to the scores.
        """
        return self._through(x, None, partial(self._attend, watched), mask, None, bias)


class DecoderLayer(_Layer):
    """Causal self-attention, cross-attention to the source, then the feed-forward layer."""

    cross = True
    cross_attention: MultiHeadAttention
    cross_residual: Residual

    def forward(  # type: ignore[override]
        self,
        x: Float[Tensor, "batch target width"],
        source: TransformerEncoded | Float[Tensor, "batch source width"],
        watched: Watched | None = None,
        bias: Float[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "batch target width"]:
        """The states of the target, each of which reads those up to its own, and the source.

        Args:
            x: the states before this layer.
            source: the encoder's states, alone or with a mask: ``TransformerEncoded(states, readable)``,
                where readable is ``(batch, 1, source)`` and True = may be read.
            watched: stores the looks.
            bias: added to the scores of self-attention.
        """
        states, readable = (source, None) if isinstance(source, Tensor) else source
        attend = partial(self._attend, watched)
        rule = causal(align="start")
        return self._through(x, states, attend, rule, readable, bias)

    def step(
        self,
        x: Tensor,
        target: HeadMemory,
        source: HeadMemory,
        state: TransformerState,
        bias: Tensor | None,
    ) -> Tensor:
        """One word a row: it joins the words before it, reads them, and then reads the source."""

        def attend(
            name: str, attention: MultiHeadAttention, q: Tensor, *_: Any, **how: Any
        ) -> Tensor:
            if name == "self":
                attention.remember(q, memory=target)
                output: Tensor = attention(q, memory=target, bias=how["bias"])
                return output
            together = q.view(-1, state.per_sentence, q.shape[-1])  # the hypotheses of a sentence
            reading: Tensor = attention(together, memory=source, mask=state.readable)
            return reading.view_as(q)

        return self._through(x, None, attend, None, None, bias)
