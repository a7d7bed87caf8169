"""What a recurrent encoder-decoder is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = [
    "AttentionName",
    "BridgeName",
    "CellName",
    "RecurrentConfiguration",
    "ScoreName",
    "Tying",
]

CellName = Literal["gru", "lstm"]
AttentionName = Literal["bahdanau", "luong", "none"]
ScoreName = Literal["additive", "dot", "general", "concat", "scaled_dot", "cosine"]
BridgeName = Literal["linear", "zero", "copy"]
Tying = Literal["none", "target", "three_way"]


@dataclass(frozen=True)
class RecurrentConfiguration:
    """The shape of a `RecurrentModel`.

    Args:
        cell: The recurrence of encoder and decoder.
        encoder_layers: Layers of the encoder.
        decoder_layers: Layers of the decoder.
        bidirectional: Whether the encoder also reads from right to left; it then gives states of
            twice `encoder_width`.
        embedding_width: Width of the word vectors, and of what the output layer reads where the
            attention is Bahdanau's or the output is tied.
        encoder_width: Width of one direction of the encoder.
        decoder_width: Width of the decoder's state.
        attention: "bahdanau" reads the source before each step, "luong" after it, "none" never:
            the source is then one fixed vector, the decoder's first state.
        score: How states are scored against the encoder's; "concat" is Luong's name for "additive".
        attention_width: Hidden width of the additive score (d_hidden; n' of Bahdanau).
        heads: 1 for the papers' attention, more for a `MultiHeadAttention` in its place.
        input_feeding: Whether Luong's attentional vector enters the next step.
        bridge: The decoder's first state: "linear" (tanh of a projection of the encoder's last
            states), "copy" (those states as they are) or "zero".
        dropout: Rate at which word vectors, states between layers and outputs are dropped.
        tied: "target" shares the target embedding with the output layer, "three_way" also with the
            source embedding.
        scheduled_sampling: Rate at which training reads the model's own words (arXiv 1506.03099).

    Raises:
        ValueError: If the parts do not fit together.
    """

    cell: CellName = "gru"
    encoder_layers: int = 1
    decoder_layers: int = 1
    bidirectional: bool = True
    embedding_width: int = 256
    encoder_width: int = 256
    decoder_width: int = 256
    attention: AttentionName = "bahdanau"
    score: ScoreName = "additive"
    attention_width: int = 256
    heads: int = 1
    input_feeding: bool = True
    bridge: BridgeName = "linear"
    dropout: float = 0.2
    tied: Tying = "none"
    scheduled_sampling: float = 0.0

    def __post_init__(self) -> None:
        for name in (
            "encoder_layers",
            "decoder_layers",
            "embedding_width",
            "encoder_width",
            "decoder_width",
            "attention_width",
            "heads",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: it has to be at least 1")
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"dropout is {self.dropout}: it has to be at least 0 and below 1")
        if not 0.0 <= self.scheduled_sampling <= 1.0:
            raise ValueError(
                f"scheduled_sampling is {self.scheduled_sampling}: it has to be between 0 and 1"
            )
        self._check_attention()
        self._check_bridge()

    def _check_attention(self) -> None:
        if self.attention == "none":
            return
        needs_one_width = self.heads == 1 and self.score in ("dot", "scaled_dot", "cosine")
        if needs_one_width and self.decoder_width != self.memory_width:
            raise ValueError(
                f"score {self.score!r} compares vectors of one width, but the decoder's states "
                f"have {self.decoder_width} and the encoder's {self.memory_width}: "
                "make them equal, or choose 'general' or 'additive'"
            )
        if self.decoder_width % self.heads:
            raise ValueError(
                f"{self.heads} heads do not divide a decoder_width of {self.decoder_width}"
            )

    def _check_bridge(self) -> None:
        if self.bridge == "zero" and self.attention == "none":
            raise ValueError(
                "attention 'none' with bridge 'zero' never shows the source to the decoder: "
                "choose bridge 'linear' or 'copy'"
            )
        if self.bridge == "copy" and (
            self.decoder_width != self.memory_width or self.decoder_layers != self.encoder_layers
        ):
            raise ValueError(
                "bridge 'copy' needs as many decoder as encoder layers and a decoder_width of "
                f"{self.memory_width} (encoder_width x directions), not {self.decoder_layers} of "
                f"{self.encoder_layers} layers and {self.decoder_width}: choose bridge 'linear'"
            )

    @property
    def memory_width(self) -> int:
        """Width of the encoder's states, both directions side by side."""
        return self.encoder_width * (2 if self.bidirectional else 1)

    @property
    def hidden_width(self) -> int:
        """Width of what the output layer reads."""
        if self.attention == "bahdanau" or self.tied != "none":
            return self.embedding_width
        return self.decoder_width
