"""The configuration of a Marian folder, checked before anything is built from it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from regard.interop.huggingface.configuration import HuggingFaceConfiguration, Id, Size
from regard.interop.marian.layout import ACTIVATIONS
from regard.translation.models.transformer import TransformerSettings
from regard.translation.settings.base import Rate, Small, Width
from regard.translation.settings.transformer import Tied

_Even = Annotated[Width, Field(multiple_of=2)]


class MarianConfiguration(HuggingFaceConfiguration):
    """The keys that we understand, with Hugging Face's defaults."""

    vocab_size: Size = 58101
    decoder_vocab_size: Size | None = None
    d_model: _Even = 1024
    encoder_layers: Small = 12
    decoder_layers: Small = 12
    encoder_attention_heads: Small = 16
    decoder_attention_heads: Small = 16
    encoder_ffn_dim: Width = 4096
    decoder_ffn_dim: Width = 4096
    activation_function: str = "gelu"
    scale_embedding: bool = False
    share_encoder_decoder_embeddings: bool = True
    tie_word_embeddings: bool = True
    dropout: Rate = 0.1
    pad_token_id: Id = 58100
    decoder_start_token_id: Id = 58100
    eos_token_id: Id = 0
    normalize_before: bool = False
    normalize_embedding: bool = False
    add_final_layer_norm: bool = False

    @property
    def target_size(self) -> int:
        shared = self.share_encoder_decoder_embeddings
        return self.vocab_size if shared or not self.decoder_vocab_size else self.decoder_vocab_size

    def settings(self) -> TransformerSettings:
        """The shape of our Transformer that computes the same."""
        shared, tied = self.share_encoder_decoder_embeddings, self.tie_word_embeddings
        return TransformerSettings(
            encoder_layers=self.encoder_layers,
            decoder_layers=self.decoder_layers,
            width=self.d_model,
            heads=self.encoder_attention_heads,
            feed_forward=self.encoder_ffn_dim,
            activation=ACTIVATIONS[self.activation_function],
            norm="post",
            tied=_TIED[shared, tied],
            dropout=self.dropout,
            attention_bias=True,
            output_bias=True,
            scale_embedding=self.scale_embedding,
        )

    def unlike_ours(self) -> list[tuple[str, str]]:
        heads = self.encoder_attention_heads
        found = [
            (self.activation_function not in ACTIVATIONS, "activation_function", _KNOWN),
            (
                heads != self.decoder_attention_heads,
                "decoder_attention_heads",
                f"expected {heads}, as in the encoder; {_ONE_NUMBER}",
            ),
            (
                self.encoder_ffn_dim != self.decoder_ffn_dim,
                "decoder_ffn_dim",
                f"expected {self.encoder_ffn_dim}, as in the encoder; {_ONE_NUMBER}",
            ),
            (self.d_model % heads != 0, "d_model", f"it is no multiple of {heads} heads"),
            *((getattr(self, key), key, _NORMS) for key in _OTHER_NORMS),
        ]
        return [(key, why) for unlike, key, why in found if unlike] + super().unlike_ours()


_KNOWN = f"known are {', '.join(ACTIVATIONS)}"
_ONE_NUMBER = (
    "this library has one setting for both sides: run the model with transformers, where"
    " regard.watch can look into it"
)
_OTHER_NORMS = ("normalize_before", "normalize_embedding", "add_final_layer_norm")
_NORMS = "Marian normalises after each sublayer and nowhere else"
# By whether both sides share their embeddings, and whether the output layer is those of the target.
_TIED: dict[tuple[bool, bool], Tied] = {
    (True, True): "three_way",
    (True, False): "embeddings",
    (False, True): "target",
    (False, False): "none",
}
