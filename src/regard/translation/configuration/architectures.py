"""The `[model]` table: which architecture, and its sizes."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from regard.translation.configuration.section import Count, Rate, Section, Small, Width


class TransformerSection(Section):
    kind: Literal["transformer"] = "transformer"
    encoder_layers: Small = 3
    decoder_layers: Small = 3
    width: Width = 256
    heads: Small = 4
    feed_forward: Width = 1024
    activation: Literal["relu", "gelu", "gelu_tanh", "silu"] = "relu"
    gated: bool = False
    norm: Literal["pre", "post"] = "pre"
    normalisation: Literal["layer", "rms"] = "layer"
    positions: Literal["sinusoidal", "learned", "rotary", "alibi", "relative"] = "sinusoidal"
    longest: Count = 512
    tied: Literal["none", "embeddings", "target", "three_way"] = "three_way"
    dropout: Rate = 0.1

    @model_validator(mode="after")
    def _heads_divide(self) -> TransformerSection:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} must be a multiple of heads {self.heads}")
        if self.width % 2 and self.positions == "sinusoidal":
            raise ValueError(f"width {self.width} must be even for sinusoidal positions")
        if self.positions == "rotary" and self.width // self.heads % 2:
            raise ValueError(
                f"width {self.width} over heads {self.heads} must be even for rotary positions, "
                "which turn channels in pairs"
            )
        return self


class RecurrentSection(Section):
    kind: Literal["recurrent"]
    cell: Literal["gru", "lstm"] = "gru"
    encoder_layers: Small = 1
    decoder_layers: Small = 1
    bidirectional: bool = True
    embedding_width: Width = 256
    encoder_width: Width = 256
    decoder_width: Width = 256
    attention: Literal["bahdanau", "luong", "none"] = "bahdanau"
    score: Literal["additive", "concat", "dot", "scaled_dot", "cosine", "general"] = "additive"
    attention_width: Width = 256
    heads: Small = 1
    input_feeding: bool = True
    bridge: Literal["linear", "zero", "copy"] = "linear"
    tied: Literal["none", "target", "three_way"] = "three_way"
    dropout: Rate = 0.1
    scheduled_sampling: Rate = 0.0
