"""The shape of a Transformer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Activation = Literal["relu", "gelu", "gelu_tanh", "silu"]
Positions = Literal["sinusoidal", "learned", "rotary", "alibi", "relative"]
Tied = Literal["none", "embeddings", "target", "three_way"]


@dataclass(frozen=True)
class TransformerSettings:
    """The shape of a Transformer; the defaults are the small model for one machine.

    Positions are vectors added to the words ("sinusoidal", "learned" up to `longest`), rotations of queries and keys
    ("rotary") or biases of self-attention ("alibi", "relative"); see `regard.attention.positions`.

    Those after `dropout` are for models of other projects: biases in the four projections of attention, in the
    feed-forward layers and of the output layer, embeddings that are not multiplied by the root of the width, heads that
    are together not as wide as the model, and which distances "relative" positions tell apart.
    """

    encoder_layers: int = 3
    decoder_layers: int = 3
    width: int = 256
    heads: int = 4
    feed_forward: int = 1024
    activation: Activation = "relu"
    gated: bool = False
    norm: Literal["pre", "post"] = "pre"
    normalisation: Literal["layer", "rms"] = "layer"
    positions: Positions = "sinusoidal"
    longest: int = 512
    tied: Tied = "three_way"
    dropout: float = 0.1
    attention_bias: bool = False
    output_bias: bool = False
    scale_embedding: bool = True
    feed_forward_bias: bool = True
    head_width: int | None = None
    relative_buckets: int = 32
    relative_furthest: int = 128
