"""The names of the weights of a Marian model and of ours, and the order of its channels.

A Marian model (Junczys-Dowmunt et al. 2018, arXiv 1804.00344; the OPUS-MT models of Tiedemann and Thottingal 2020) is
a post-norm Transformer with biases in attention. Its positions are sines in the first half of the channels and cosines
in the second, ours alternate. So the residual channels are put into our order: every weight that reads or writes them
is permuted, and the model computes exactly the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from jaxtyping import Int
from torch import Tensor

from regard.translation.models.transformer import TransformerSettings
from regard.translation.settings.transformer import Activation

SHARED = "model.shared.weight"
ENCODER_WORDS = "model.encoder.embed_tokens.weight"
DECODER_WORDS = "model.decoder.embed_tokens.weight"
OUTPUT, OUTPUT_BIAS = "lm_head.weight", "final_logits_bias"
# Tables of sines, which we compute; older files hold them.
POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")

ACTIVATIONS: dict[str, Activation] = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
}

_PROJECTIONS = {
    "query_projection": "q_proj",
    "key_projection": "k_proj",
    "value_projection": "v_proj",
    "output_projection": "out_proj",
}
_SELF = {
    **{f"self_attention.{ours}": f"self_attn.{theirs}" for ours, theirs in _PROJECTIONS.items()},
    "self_residual.norm": "self_attn_layer_norm",
}
_CROSS = {
    **{
        f"cross_attention.{ours}": f"encoder_attn.{theirs}" for ours, theirs in _PROJECTIONS.items()
    },
    "cross_residual.norm": "encoder_attn_layer_norm",
}
_FEED_FORWARD = {
    "feed_forward.inner": "fc1",
    "feed_forward.outer": "fc2",
    "feed_forward_residual.norm": "final_layer_norm",
}
_LAYERS = {
    "encoder": {**_SELF, **_FEED_FORWARD},
    "decoder": {**_SELF, **_CROSS, **_FEED_FORWARD},
}

# Weights that read the residual channels have them on their last axis; weights that write them, on their first.
_READS = (
    "embedding.weight",
    "query_projection.weight",
    "key_projection.weight",
    "value_projection.weight",
    "inner.weight",
    "output.weight",
)
_WRITES = ("output_projection.weight", "output_projection.bias", "outer.weight", "outer.bias")


def layer_names(settings: TransformerSettings) -> Iterator[tuple[str, str]]:
    """Our name and theirs of every weight in the layers."""
    counts = {"encoder": settings.encoder_layers, "decoder": settings.decoder_layers}
    for side, modules in _LAYERS.items():
        for layer in range(counts[side]):
            for ours, theirs in modules.items():
                for part in ("weight", "bias"):
                    yield (
                        f"{side}.{layer}.{ours}.{part}",
                        f"model.{side}.layers.{layer}.{theirs}.{part}",
                    )


def halves(width: int) -> Int[Tensor, " width"]:
    """For each channel of theirs, sines then cosines, the channel of ours that it is.

    >>> halves(6)
    tensor([0, 2, 4, 1, 3, 5])
    """
    return torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)])


def reordered(tensors: Mapping[str, Tensor], order: Int[Tensor, " width"]) -> dict[str, Tensor]:
    """The weights of a model, by our names, with its channels in another order: channel i is the old order[i]."""
    return {name: _reordered(name, tensor, order) for name, tensor in tensors.items()}


def _reordered(name: str, tensor: Tensor, order: Tensor) -> Tensor:
    if name.endswith(_READS):
        return tensor[..., order]
    if name.endswith(_WRITES) or name.rpartition(".")[0].endswith("norm"):
        return tensor[order]
    return tensor
