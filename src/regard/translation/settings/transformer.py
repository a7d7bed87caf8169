"""The settings of a Transformer, as in the `[model]` table with kind = "transformer"."""

from collections.abc import Iterator
from typing import Literal

from regard.translation.settings.base import (
    Count,
    NormaliserName,
    Rate,
    ScoreName,
    Settings,
    Small,
    Width,
)

Activation = Literal["relu", "gelu", "gelu_tanh", "silu"]
Tied = Literal["none", "embeddings", "target", "three_way"]


class TransformerSettings(Settings):
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
    activation: Activation = "relu"
    """Activation of the feed-forward layers."""
    gated: bool = False
    """Whether the activation gates a second projection (GLU, arXiv 2002.05202)."""
    norm: Literal["pre", "post"] = "pre"
    """Normalisation before each sublayer ("pre"), or after its residual sum ("post")."""
    normalisation: Literal["layer", "rms"] = "layer"
    """Layer norm, or RMS norm (arXiv 1910.07467)."""
    score: ScoreName = "scaled_dot"
    """How queries are scored against keys, in every attention. "concat" is Luong's name for "additive"."""
    normaliser: NormaliserName = "softmax"
    """How scores become weights, in every attention: "softmax"; "sparsemax" (arXiv 1602.02068) and "entmax" (arXiv
    1905.05702), which give many keys the weight 0; or "hard", all weight on one key, which gives scores no gradient.
    """
    positions: Literal["sinusoidal", "learned", "rotary", "alibi", "relative", "none"] = (
        "sinusoidal"
    )
    """How a layer knows the order of words: vectors added to the embeddings ("sinusoidal", "learned"), rotations
    of queries and keys ("rotary"), biases of self-attention ("alibi", "relative"), or not at all ("none").
    """
    longest: Count = 512
    """The number of positions that "learned" positions have."""
    tied: Tied = "three_way"
    """Embeddings that share their weights: none; source and target ("embeddings"); target and output layer
    ("target"); or all three ("three_way").
    """
    dropout: Rate = 0.1
    """Dropout rate of embeddings and sublayers."""

    attention_bias: bool = False
    """Whether the projections of attention have biases. This key and those below are for models of other projects."""
    feed_forward_bias: bool = True
    """Whether the feed-forward layers have biases."""
    output_bias: bool = False
    """Whether the output layer has a bias."""
    scale_embedding: bool = True
    """Whether embeddings are multiplied by the square root of `width`."""
    head_width: Width | None = None
    """Width of an attention head. Default: `width` divided by `heads`."""
    relative_buckets: Small = 32
    """The number of distances that "relative" positions tell apart; a multiple of 4."""
    relative_furthest: Count = 128
    """The distance from which on "relative" positions share one bias."""

    @property
    def plain_attention(self) -> bool:
        """Whether weights are the softmax of scaled dot products, as other projects have them."""
        return (self.score, self.normaliser) == ("scaled_dot", "softmax")

    @property
    def position_parameters(self) -> int:
        """How many trained numbers the scheme of positions has."""
        match self.positions:
            case "learned":
                return self.longest * self.width
            case "relative":
                return 2 * self.heads * self.relative_buckets
        return 0

    @property
    def attending_layers(self) -> int:
        """Decoder layers that read the source."""
        return self.decoder_layers

    def faults(self) -> Iterator[str]:
        head_width = self.head_width
        if head_width is None and self.width % self.heads:
            yield f"width {self.width} must be a multiple of heads {self.heads}"
        if self.positions == "rotary" and (head_width or self.width // self.heads) % 2:
            sizes = (
                f"head_width {head_width}"
                if head_width
                else f"width {self.width} over heads {self.heads}"
            )
            yield f"{sizes} must be even for rotary positions, which turn channels in pairs"
        if self.positions == "sinusoidal" and self.width % 2:
            yield f"width {self.width} must be even for sinusoidal positions"
        buckets, furthest = self.relative_buckets, self.relative_furthest
        if self.positions == "relative" and buckets % 4:
            yield f"relative_buckets {buckets} must be a multiple of 4"
        if self.positions == "relative" and furthest <= buckets // 2:
            yield f"relative_furthest {furthest} must be above half of relative_buckets {buckets}"
