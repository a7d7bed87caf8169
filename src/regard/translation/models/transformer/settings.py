"""The shape of a Transformer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class TransformerSettings:
    """The shape of a Transformer; the defaults are the small model for one machine.

    The last three are for models of other projects: biases in the four projections of attention, a bias of the
    output layer, and embeddings that are not multiplied by the root of the width.
    """

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
    attention_bias: bool = False
    output_bias: bool = False
    scale_embedding: bool = True
