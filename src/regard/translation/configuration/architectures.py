"""The `[model]` table: which architecture, and its sizes."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from regard.translation.configuration.section import Count, Rate, Section, Small, Width


class TransformerSection(Section):
    """A Transformer (arXiv 1706.03762)."""

    kind: Literal["transformer"] = "transformer"
    """The architecture."""
    encoder_layers: Small = 3
    """Layers of the encoder."""
    decoder_layers: Small = 3
    """Layers of the decoder."""
    width: Width = 256
    """Width of the word vectors and of every layer (d_model)."""
    heads: Small = 4
    """Attention heads of a layer."""
    feed_forward: Width = 1024
    """Hidden width of the feed-forward layers (d_ff)."""
    activation: Literal["relu", "gelu", "gelu_tanh", "silu"] = "relu"
    """Activation of the feed-forward layers."""
    gated: bool = False
    """Whether the activation gates a second projection (GLU, arXiv 2002.05202)."""
    norm: Literal["pre", "post"] = "pre"
    """Normalisation before each sublayer ("pre"), or after its residual sum ("post")."""
    normalisation: Literal["layer", "rms"] = "layer"
    """Layer norm, or RMS norm (arXiv 1910.07467)."""
    positions: Literal["sinusoidal", "learned", "rotary", "alibi", "relative"] = "sinusoidal"
    """How a layer knows the order of words: vectors added to the embeddings ("sinusoidal", "learned"), rotations
    of queries and keys ("rotary"), or biases of self-attention ("alibi", "relative").
    """
    longest: Count = 512
    """The number of positions that "learned" positions have."""
    tied: Literal["none", "embeddings", "target", "three_way"] = "three_way"
    """Embeddings that share their weights: none; source and target ("embeddings"); target and output layer
    ("target"); or all three ("three_way").
    """
    dropout: Rate = 0.1
    """Dropout rate of embeddings and sublayers."""

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
    """A recurrent encoder-decoder with attention (arXiv 1409.0473, 1508.04025)."""

    kind: Literal["recurrent"]
    """The architecture."""
    cell: Literal["gru", "lstm"] = "gru"
    """The recurrent cell of encoder and decoder."""
    encoder_layers: Small = 1
    """Layers of the encoder."""
    decoder_layers: Small = 1
    """Layers of the decoder."""
    bidirectional: bool = True
    """Whether the encoder also reads from right to left. Its states then have twice `encoder_width`."""
    embedding_width: Width = 256
    """Width of the word vectors."""
    encoder_width: Width = 256
    """Width of one direction of the encoder."""
    decoder_width: Width = 256
    """Width of the decoder's state."""
    attention: Literal["bahdanau", "luong", "none"] = "bahdanau"
    """When the decoder reads the source: before each step ("bahdanau"), after it ("luong"), or never ("none": the
    source is one vector, the first state of the decoder).
    """
    score: Literal["additive", "concat", "dot", "scaled_dot", "cosine", "general"] = "additive"
    """How the decoder's state is scored against the encoder's states. "concat" is Luong's name for "additive"."""
    attention_width: Width = 256
    """Hidden width of the additive score (d_hidden)."""
    heads: Small = 1
    """Attention heads; 1 is the attention of the papers."""
    input_feeding: bool = True
    """Whether Luong's attentional vector enters the next step."""
    bridge: Literal["linear", "zero", "copy"] = "linear"
    """The first state of the decoder: a tanh layer over the last states of the encoder ("linear"), those states
    themselves ("copy"), or zeros ("zero").
    """
    tied: Literal["none", "target", "three_way"] = "three_way"
    """Embeddings that share their weights: none; target and output layer ("target"); or source as well
    ("three_way").
    """
    dropout: Rate = 0.1
    """Dropout rate of word vectors, states between layers, and outputs."""
    scheduled_sampling: Rate = 0.0
    """Rate at which training reads the model's own words in place of the reference (arXiv 1506.03099)."""
