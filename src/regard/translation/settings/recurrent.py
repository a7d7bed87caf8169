"""The settings of a recurrent model, as in the `[model]` table with kind = "recurrent"."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from regard.translation.settings.base import NormaliserName, Rate, ScoreName, Settings, Small, Width

CellName = Literal["gru", "lstm"]
AttentionName = Literal["bahdanau", "luong", "none"]


class RecurrentSettings(Settings):
    """A recurrent encoder-decoder with attention (arXiv 1409.0473, 1508.04025)."""

    kind: Literal["recurrent"] = "recurrent"
    """The architecture."""
    cell: CellName = "gru"
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
    attention: AttentionName = "bahdanau"
    """When the decoder reads the source: before each step ("bahdanau"), after it ("luong"), or never ("none": the
    source is one vector, the first state of the decoder).
    """
    score: ScoreName = "additive"
    """How the decoder's state is scored against the encoder's states. "concat" is Luong's name for "additive"."""
    normaliser: NormaliserName = "softmax"
    """How scores become weights: "softmax"; "sparsemax" (arXiv 1602.02068) and "entmax" (arXiv 1905.05702), which give
    many states the weight 0; or "hard", all weight on one state, which gives scores no gradient.
    """
    positions: Literal["none", "sinusoidal"] = "none"
    """Vectors added to the embeddings of the source. A recurrent encoder knows the order of words without them."""
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
    scheduled_sampling: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Rate at which training reads the model's own words in place of the reference (arXiv 1506.03099)."""

    def faults(self) -> Iterator[str]:
        one_width = self.decoder_width == self.memory_width
        compares = self.score in ("dot", "scaled_dot", "cosine") and self.heads == 1
        if self.attention != "none" and compares and not one_width:
            yield (
                f"score {self.score!r} compares vectors of one width, but the decoder's states "
                f"have {self.decoder_width} and the encoder's {self.memory_width}: "
                "make them equal, or choose 'general' or 'additive'"
            )
        if self.attention != "none" and self.decoder_width % self.heads:
            yield f"{self.heads} heads do not divide a decoder_width of {self.decoder_width}"
        if self.attention == "none" and self.bridge == "zero":
            yield (
                "attention 'none' with bridge 'zero' never shows the source to the decoder: "
                "choose bridge 'linear' or 'copy'"
            )
        one_depth = self.decoder_layers == self.encoder_layers
        if self.bridge == "copy" and not (one_width and one_depth):
            yield (
                "bridge 'copy' needs as many decoder as encoder layers and a decoder_width of "
                f"{self.memory_width} (encoder_width x directions), not {self.decoder_layers} of "
                f"{self.encoder_layers} layers and {self.decoder_width}: choose bridge 'linear'"
            )

    @property
    def attending_layers(self) -> int:
        """Decoder layers that read the source at each step."""
        return 0 if self.attention == "none" else 1

    @property
    def memory_width(self) -> int:
        """Width of the encoder's states, both directions side by side."""
        return self.encoder_width * (2 if self.bidirectional else 1)

    @property
    def hidden_width(self) -> int:
        """Width of the input of the output layer."""
        if self.attention == "bahdanau" or self.tied != "none":
            return self.embedding_width
        return self.decoder_width
