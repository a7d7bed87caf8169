"""Conversion of torch's layers and stacks to ours and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import nn

from regard.attention.blocks import ACTIVATIONS
from regard.attention.heads import MultiHeadAttention
from regard.interop.torch.attention import attention_from_torch, attention_to_torch
from regard.interop.torch.stacks import DecoderStack, EncoderDecoder, EncoderStack
from regard.translation.models.transformer import (
    DecoderLayer,
    EncoderLayer,
    Transformer,
    TransformerSettings,
)
from regard.translation.settings.transformer import Activation

_Layer = TypeVar("_Layer", EncoderLayer, DecoderLayer)

_SHARED = {
    "feed_forward.inner": "linear1",
    "feed_forward.outer": "linear2",
    "self_residual.norm": "norm1",
}
_NAMES: dict[type[nn.Module], dict[str, str]] = {
    EncoderLayer: {**_SHARED, "feed_forward_residual.norm": "norm2"},
    DecoderLayer: {
        **_SHARED,
        "cross_residual.norm": "norm2",
        "feed_forward_residual.norm": "norm3",
    },
}
_ATTENTIONS = {
    EncoderLayer: {"self_attention": "self_attn"},
    DecoderLayer: {"self_attention": "self_attn", "cross_attention": "multihead_attn"},
}


_ACTIVATIONS: list[tuple[Activation, Callable[[Any], bool]]] = [
    ("relu", lambda given: type(given) is nn.ReLU),
    ("gelu", lambda given: type(given) is nn.GELU and given.approximate == "none"),
    ("gelu_tanh", lambda given: type(given) is nn.GELU and given.approximate == "tanh"),
    ("silu", lambda given: type(given) is nn.SiLU),
]


def from_torch(theirs: nn.Module) -> Any:
    """Our counterpart of a module of torch, with copies of its weights, on its device, in its mode.

    =============================  ==============================================
    nn.MultiheadAttention          `regard.MultiHeadAttention`
    nn.TransformerEncoderLayer     `EncoderLayer` of our Transformer
    nn.TransformerDecoderLayer     `DecoderLayer`; its attention to itself is causal
    nn.TransformerEncoder          `EncoderStack`
    nn.TransformerDecoder          `DecoderStack`
    nn.Transformer                 `EncoderDecoder`
    =============================  ==============================================

    In evaluation they answer the same. In training torch also drops weights of attention and inner activations of
    the feed-forward layer, which our layers do not.

    Raises:
        TypeError: If the module is none of these.
        ValueError: If ours has no counterpart of one of its parts.
    """
    if isinstance(theirs, nn.MultiheadAttention):
        return attention_from_torch(theirs)
    if isinstance(theirs, nn.TransformerEncoderLayer):
        return _layer_from_torch(EncoderLayer, theirs, "encoder.0")
    if isinstance(theirs, nn.TransformerDecoderLayer):
        return _layer_from_torch(DecoderLayer, theirs, "decoder.0")
    if isinstance(theirs, nn.TransformerEncoder):
        encoders = _layers_from_torch(EncoderLayer, theirs, "encoder")
        return EncoderStack(encoders, _norm_from_torch(theirs.norm)).train(theirs.training)
    if isinstance(theirs, nn.TransformerDecoder):
        decoders = _layers_from_torch(DecoderLayer, theirs, "decoder")
        return DecoderStack(decoders, _norm_from_torch(theirs.norm)).train(theirs.training)
    if isinstance(theirs, nn.Transformer):
        both = from_torch(theirs.encoder), from_torch(theirs.decoder)
        return EncoderDecoder(*both).train(theirs.training)
    raise TypeError(
        f"got a {type(theirs).__name__}: pass nn.MultiheadAttention, nn.TransformerEncoderLayer, "
        "nn.TransformerDecoderLayer, nn.TransformerEncoder, nn.TransformerDecoder or nn.Transformer"
    )


def to_torch(ours: nn.Module) -> Any:
    """torch's counterpart of a module of ours, ``batch_first``, with copies of its weights.

    A translation model gives the nn.Transformer between its embeddings and its output layer. Pass a causal
    ``tgt_mask`` to torch's decoders: ours are causal always.

    Raises:
        TypeError: If there is no counterpart.
        ValueError: If torch has no counterpart of one of its parts.
    """
    if isinstance(ours, MultiHeadAttention):
        return attention_to_torch(ours)
    if isinstance(ours, EncoderLayer):
        return _layer_to_torch(ours, nn.TransformerEncoderLayer)
    if isinstance(ours, DecoderLayer):
        return _layer_to_torch(ours, nn.TransformerDecoderLayer)
    if isinstance(ours, EncoderStack):
        return _encoder_to_torch(ours.layers, ours.norm, ours.training)
    if isinstance(ours, DecoderStack):
        return _decoder_to_torch(ours.layers, ours.norm, ours.training)
    if isinstance(ours, EncoderDecoder):
        return _both_to_torch(to_torch(ours.encoder), to_torch(ours.decoder), ours.training)
    if isinstance(ours, Transformer):
        if ours.encoder_bias is not None:
            positions = ours.settings.positions
            raise ValueError(
                f'positions are "{positions}", biases of scores: torch\'s layers have none'
            )
        encoder = _encoder_to_torch(ours.encoder, ours.encoder_norm, ours.training)
        decoder = _decoder_to_torch(ours.decoder, ours.decoder_norm, ours.training)
        return _both_to_torch(encoder, decoder, ours.training)
    raise TypeError(
        f"got a {type(ours).__name__}: pass a MultiHeadAttention, a layer, a stack or a Transformer of ours"
    )


def _layers_from_torch(kind: type[_Layer], theirs: Any, name: str) -> list[_Layer]:
    return [_layer_from_torch(kind, layer, f"{name}.{i}") for i, layer in enumerate(theirs.layers)]


@torch.no_grad()
def _layer_from_torch(kind: type[_Layer], theirs: Any, name: str) -> _Layer:
    ours = kind(_settings(theirs), name).to(theirs.linear1.weight)
    for own, other in _ATTENTIONS[kind].items():
        setattr(ours, own, attention_from_torch(getattr(theirs, other)))
        getattr(ours, own).dropout = 0.0
    for own, other in _NAMES[kind].items():
        _copy(theirs.get_submodule(other), ours.get_submodule(own))
    return ours.train(theirs.training)


@torch.no_grad()
def _layer_to_torch(ours: Any, kind: Callable[..., nn.Module]) -> Any:
    inner = ours.feed_forward.inner
    residual = ours.self_residual
    if ours.feed_forward.gate is not None or inner.bias is None:
        raise ValueError(
            "its feed-forward layer has a gate or no biases: torch's has no gate, and biases"
        )
    if not isinstance(residual.norm, nn.LayerNorm):
        raise ValueError(f"its norms are {type(residual.norm).__name__}: torch's are LayerNorm")
    theirs: Any = kind(
        inner.in_features,
        ours.self_attention.heads,
        inner.out_features,
        dropout=residual.dropout.rate,
        activation=ours.feed_forward.activation,
        batch_first=True,
        norm_first=residual.before,
        device=inner.weight.device,
        dtype=inner.weight.dtype,
    )
    for own, other in _ATTENTIONS[type(ours)].items():
        setattr(theirs, other, attention_to_torch(getattr(ours, own)))
    for own, other in _NAMES[type(ours)].items():
        _copy(ours.get_submodule(own), theirs.get_submodule(other))
    return theirs.train(ours.training)


def _settings(theirs: Any) -> TransformerSettings:
    return TransformerSettings(
        width=theirs.linear1.in_features,
        heads=theirs.self_attn.num_heads,
        feed_forward=theirs.linear1.out_features,
        activation=_activation(theirs.activation),
        norm="pre" if theirs.norm_first else "post",
        dropout=theirs.dropout1.p,
        attention_bias=theirs.self_attn.in_proj_bias is not None,
    )


def _activation(given: Any) -> Activation:
    for name, is_module in _ACTIVATIONS:
        if given is ACTIVATIONS[name] or is_module(given):
            return name
    raise ValueError(f"its activation is {given}: ours are {', '.join(ACTIVATIONS)}")


def _norm_from_torch(theirs: nn.Module | None) -> nn.LayerNorm | None:
    if theirs is None:
        return None
    if not isinstance(theirs, nn.LayerNorm) or theirs.weight is None:
        raise ValueError(f"its last norm is {theirs}: ours is a LayerNorm with weights")
    return _norm(theirs)


@torch.no_grad()
def _norm(norm: nn.LayerNorm) -> nn.LayerNorm:
    made = nn.LayerNorm(norm.normalized_shape).to(norm.weight)
    _copy(norm, made)
    return made


def _copy(source: Any, target: Any) -> None:
    """Copy weight and bias, and the epsilon of a norm; a missing bias becomes zero."""
    target.weight.copy_(source.weight)
    if target.bias is not None:
        target.bias.copy_(torch.zeros_like(target.bias) if source.bias is None else source.bias)
    if isinstance(source, nn.LayerNorm):
        target.eps = source.eps


def _encoder_to_torch(layers: nn.ModuleList, norm: nn.Module, training: bool) -> nn.Module:
    converted = [to_torch(layer) for layer in layers]
    theirs = nn.TransformerEncoder(converted[0], 0, enable_nested_tensor=False)
    return _filled(theirs, converted, norm, training)


def _decoder_to_torch(layers: nn.ModuleList, norm: nn.Module, training: bool) -> nn.Module:
    converted = [to_torch(layer) for layer in layers]
    return _filled(nn.TransformerDecoder(converted[0], 0), converted, norm, training)


def _filled(theirs: Any, layers: list[nn.Module], norm: nn.Module, training: bool) -> nn.Module:
    theirs.layers, theirs.num_layers = nn.ModuleList(layers), len(layers)
    theirs.norm = _norm(norm) if isinstance(norm, nn.LayerNorm) else None
    made: nn.Module = theirs.train(training)
    return made


def _both_to_torch(encoder: nn.Module, decoder: nn.Module, training: bool) -> nn.Transformer:
    attention = next(m for m in encoder.modules() if isinstance(m, nn.MultiheadAttention))
    width, heads = attention.embed_dim, attention.num_heads
    theirs = nn.Transformer(
        width,
        heads,
        custom_encoder=nn.Identity(),
        custom_decoder=nn.Identity(),
        batch_first=True,
    )
    # Set afterwards: the constructor initialises the layers it is given again.
    theirs.encoder, theirs.decoder = encoder, decoder
    return theirs.train(training)
