"""The configuration of a T5 folder, checked before anything is built from it."""

from __future__ import annotations

from typing import Any

from regard.interop.huggingface.configuration import HuggingFaceConfiguration, Id, Size
from regard.translation.models.transformer import TransformerSettings
from regard.translation.settings.base import Rate, Small, Width
from regard.translation.settings.transformer import Activation, Tied

# The values of feed_forward_proj: the activation, and whether there is a gate. Gated GELU is the approximate one.
_FEED_FORWARD: dict[str, tuple[Activation, bool]] = {
    "relu": ("relu", False),
    "gelu": ("gelu", False),
    "gelu_new": ("gelu_tanh", False),
    "silu": ("silu", False),
    "gated-relu": ("relu", True),
    "gated-gelu": ("gelu_tanh", True),
    "gated-silu": ("silu", True),
}


class T5Configuration(HuggingFaceConfiguration):
    """The keys that we understand, with Hugging Face's defaults."""

    model_type: str = "t5"
    vocab_size: Size = 32128
    d_model: Width = 512
    d_kv: Width = 64
    d_ff: Width = 2048
    num_layers: Small = 6
    num_decoder_layers: Small | None = None
    num_heads: Small = 8
    relative_attention_num_buckets: Small = 32
    relative_attention_max_distance: Size = 128
    dropout_rate: Rate = 0.1
    layer_norm_epsilon: float = 1e-6
    feed_forward_proj: str | None = None
    pad_token_id: Id = 0
    decoder_start_token_id: Id = 0
    eos_token_id: Id = 1
    tie_word_embeddings: bool = True
    scale_decoder_outputs: bool | None = None
    task_specific_params: dict[str, Any] | None = None

    @property
    def feed_forward(self) -> str:
        if self.feed_forward_proj is None:
            return "relu" if self.model_type == "t5" else "gated-gelu"
        return self.feed_forward_proj

    @property
    def gated(self) -> bool:
        return _FEED_FORWARD[self.feed_forward][1]

    @property
    def scales_output(self) -> bool:
        """Whether the input of the output layer is divided by the root of the width.

        The first T5 does that, and ties its output layer to the embeddings. Folders written before version 5 of
        transformers record only that the layer is tied.
        """
        said = self.scale_decoder_outputs
        return self.model_type == "t5" and (self.tie_word_embeddings if said is None else said)

    def settings(self, tied: Tied) -> TransformerSettings:
        """The shape of our Transformer that computes the same."""
        activation, gated = _FEED_FORWARD[self.feed_forward]
        return TransformerSettings(
            encoder_layers=self.num_layers,
            decoder_layers=self.num_decoder_layers or self.num_layers,
            width=self.d_model,
            heads=self.num_heads,
            head_width=self.d_kv,
            feed_forward=self.d_ff,
            activation=activation,
            gated=gated,
            normalisation="rms",
            positions="relative",
            relative_buckets=self.relative_attention_num_buckets,
            relative_furthest=self.relative_attention_max_distance,
            tied=tied,
            dropout=self.dropout_rate,
            feed_forward_bias=False,
            output_bias=True,
            scale_embedding=False,
        )

    def unlike_ours(self) -> list[tuple[str, str]]:
        buckets, near = (
            self.relative_attention_num_buckets,
            self.relative_attention_num_buckets // 2,
        )
        known = f"known are {', '.join(_FEED_FORWARD)}"
        found = [
            (self.feed_forward not in _FEED_FORWARD, "feed_forward_proj", known),
            (self.layer_norm_epsilon != 1e-6, "layer_norm_epsilon", "ours is 1e-06"),
            (buckets % 4 != 0, "relative_attention_num_buckets", "ours are a multiple of 4"),
            (
                self.relative_attention_max_distance <= near,
                "relative_attention_max_distance",
                f"the decoder tells {near} distances apart one by one, it must be more",
            ),
        ]
        return [(key, why) for unlike, key, why in found if unlike] + super().unlike_ours()
