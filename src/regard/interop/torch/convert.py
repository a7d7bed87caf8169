"""Conversion of torch's layers and stacks to ours and back; our stacks of layers have no embeddings, as torch's."""

import copy
from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.attention.blocks import ACTIVATIONS
from regard.attention.heads import MultiHeadAttention
from regard.interop.altered import refuse_altered
from regard.interop.torch.attention import attention_from_torch, attention_to_torch
from regard.translation.models.protocol import Looks, Watched
from regard.translation.models.transformer.layers import (
    DecoderLayer,
    EncoderLayer,
    TransformerEncoded,
)
from regard.translation.models.transformer.model import Transformer
from regard.translation.settings.transformer import TransformerSettings

# Our names of the parts of a layer, and torch's.
_ENCODER = {
    "self_attention": "self_attn",
    "self_residual.norm": "norm1",
    "feed_forward.inner": "linear1",
    "feed_forward.outer": "linear2",
    "feed_forward_residual.norm": "norm2",
}
_DECODER = {
    **_ENCODER,
    "cross_attention": "multihead_attn",
    "cross_residual.norm": "norm2",
    "feed_forward_residual.norm": "norm3",
}
_KINDS: dict[str, tuple[type[nn.Module], ...]] = {
    "self_attn": (nn.MultiheadAttention,),
    "multihead_attn": (nn.MultiheadAttention,),
    "linear": (nn.Linear,),
    "norm": (nn.LayerNorm,),
    "dropout": (nn.Dropout, nn.Identity),  # Identity is a dropout that was switched off
}
_LAYERS: tuple[tuple[Any, Any, str, dict[str, str]], ...] = (
    (EncoderLayer, nn.TransformerEncoderLayer, "encoder", _ENCODER),
    (DecoderLayer, nn.TransformerDecoderLayer, "decoder", _DECODER),
)


class _Watched(nn.Module):
    """A module whose `forward` takes a `Watched` by this name and stores its looks there."""

    def looks(self, *inputs: Tensor | None) -> Looks:
        """The look of every layer by its name, "encoder.0.self", "decoder.0.cross" and so on; called like `forward`."""
        watched = Watched()
        self(*inputs, watched=watched)
        return watched.looks


class _Stack(_Watched):
    """Layers one after the other, and a norm at the end where there is one."""

    def __init__(self, layers: Iterable[nn.Module], norm: nn.Module | None = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = nn.Identity() if norm is None else norm

    def _run(self, x: Tensor, read: Any, watched: Watched | None) -> Tensor:
        for layer in self.layers:
            x = layer(x, read, watched)
        output: Tensor = self.norm(x)
        return output


class EncoderStack(_Stack):
    """Encoder layers one after the other, and a norm at the end where there is one."""

    def forward(
        self,
        x: Float[Tensor, "batch source width"],
        mask: Bool[Tensor, "..."] | None = None,
        watched: Watched | None = None,
    ) -> Float[Tensor, "batch source width"]:
        """The states; ``mask`` says what may be read, ``(batch, 1, source)`` for padding."""
        return self._run(x, mask, watched)


class DecoderStack(_Stack):
    """Decoder layers, each causal in what it wrote, and a norm at the end where there is one."""

    def forward(
        self,
        x: Float[Tensor, "batch target width"],
        states: Float[Tensor, "batch source width"],
        readable: Bool[Tensor, "batch 1 source"] | None = None,
        watched: Watched | None = None,
    ) -> Float[Tensor, "batch target width"]:
        """The states of the decoder; ``readable`` marks the encoder states that may be read."""
        return self._run(x, TransformerEncoded(states, readable), watched)


class EncoderDecoder(_Watched):
    """An encoder, and a decoder that reads it."""

    def __init__(self, encoder: EncoderStack, decoder: DecoderStack) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def forward(
        self,
        source: Float[Tensor, "batch source width"],
        target: Float[Tensor, "batch target width"],
        readable: Bool[Tensor, "batch 1 source"] | None = None,
        watched: Watched | None = None,
    ) -> Float[Tensor, "batch target width"]:
        """The states of the decoder; ``readable`` marks the source positions that may be read."""
        states = self.encoder(source, readable, watched)
        output: Tensor = self.decoder(target, states, readable, watched)
        return output


_THEIRS = (
    nn.MultiheadAttention,
    nn.TransformerEncoderLayer,
    nn.TransformerDecoderLayer,
    nn.TransformerEncoder,
    nn.TransformerDecoder,
    nn.Transformer,
)
_OURS = (
    MultiHeadAttention,
    Transformer,
    EncoderDecoder,
    EncoderStack,
    DecoderStack,
    EncoderLayer,
    DecoderLayer,
)


def from_torch(theirs: nn.Module) -> Any:
    """Our counterpart of a module of torch, with copies of its weights, on its device, in its mode.

    =============================  ==============================================
    nn.MultiheadAttention          `regard.MultiHeadAttention`
    nn.TransformerEncoderLayer     `EncoderLayer` of our Transformer: ``(x, mask)``
    nn.TransformerDecoderLayer     `DecoderLayer`: ``(x, states)``; its attention to itself is causal
    nn.TransformerEncoder          `EncoderStack`: ``(x, mask)``
    nn.TransformerDecoder          `DecoderStack`: ``(x, states, readable)``
    nn.Transformer                 `EncoderDecoder`: ``(source, target, readable)``
    =============================  ==============================================

    ``mask`` and ``readable`` are ``(batch, 1, source)`` for padding, or left out. A single `DecoderLayer` takes padding
    as ``TransformerEncoded(states, readable)`` in place of the states.

    In evaluation they answer the same. In training torch also drops weights of attention and inner activations of
    the feed-forward layer, which our layers do not. Ours take ``(batch, length, width)`` whatever ``batch_first``
    says, and masks with True = may be read (see `masks_from_torch`). A row with nothing to read gives zero, and NaN
    there.

    Raises:
        TypeError: If the module is none of these.
        ValueError: If ours has no counterpart of one of its parts, such as ``add_bias_kv`` or ``add_zero_attn``,
            or a part may compute something else than torch's class: a subclass that overrides methods, forward hooks,
            parametrizations, or a replaced method.

    Example:
        >>> theirs = nn.MultiheadAttention(8, 2, batch_first=True)
        >>> x = torch.ones(1, 3, 8)
        >>> bool(torch.allclose(from_torch(theirs)(x), theirs(x, x, x)[0], atol=1e-6))
        True
    """
    if isinstance(theirs, _THEIRS):
        refuse_altered(theirs, ValueError)
    if isinstance(theirs, nn.MultiheadAttention):
        return attention_from_torch(theirs)
    if isinstance(theirs, nn.Transformer):
        halves = from_torch(theirs.encoder), from_torch(theirs.decoder)
        return EncoderDecoder(*halves).train(theirs.training)
    if isinstance(theirs, nn.TransformerEncoder | nn.TransformerDecoder):
        stack = EncoderStack if isinstance(theirs, nn.TransformerEncoder) else DecoderStack
        layers = [_layer_from_torch(layer, i) for i, layer in enumerate(theirs.layers)]
        return stack(layers, _norm_from_torch(theirs.norm)).train(theirs.training)
    if isinstance(theirs, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
        return _layer_from_torch(theirs, 0)
    *names, last_name = (f"nn.{kind.__name__}" for kind in _THEIRS)
    raise TypeError(f"got a {type(theirs).__name__}: pass {', '.join(names)} or {last_name}")


def to_torch(ours: nn.Module) -> Any:
    """torch's counterpart of a module of ours, ``batch_first``, with copies of its weights.

    A translation model gives the nn.Transformer between its embeddings and its output layer. Pass a causal
    ``tgt_mask`` to torch's decoders: ours are causal always.

    Raises:
        TypeError: If there is no counterpart.
        ValueError: If torch has no counterpart of one of its parts, or a part may compute something else than its
            class, as for `from_torch`.
    """
    if isinstance(ours, _OURS):
        refuse_altered(ours, ValueError)
    if isinstance(ours, MultiHeadAttention):
        return attention_to_torch(ours)
    if isinstance(ours, Transformer):
        if ours.encoder_bias is not None:
            positions = ours.settings.positions
            raise ValueError(
                f'positions are "{positions}", biases of scores: torch\'s layers have none'
            )
        pair = EncoderDecoder(
            EncoderStack(ours.encoder, ours.encoder_norm),
            DecoderStack(ours.decoder, ours.decoder_norm),
        )
        return to_torch(pair).train(ours.training)
    if isinstance(ours, EncoderDecoder):
        encoder, decoder = to_torch(ours.encoder), to_torch(ours.decoder)
        attention = encoder.layers[0].self_attn
        theirs = nn.Transformer(
            attention.embed_dim,
            attention.num_heads,
            custom_encoder=nn.Identity(),
            custom_decoder=nn.Identity(),
            batch_first=True,
        )
        # Set afterwards: the constructor initialises the layers it is given again.
        theirs.encoder, theirs.decoder = encoder, decoder
        return theirs.train(ours.training)
    if isinstance(ours, EncoderStack | DecoderStack):
        return _stack_to_torch(ours)
    if isinstance(ours, EncoderLayer | DecoderLayer):
        return _layer_to_torch(ours)
    raise TypeError(
        f"got a {type(ours).__name__}: pass a MultiHeadAttention, a layer, a stack or a Transformer of ours"
    )


@torch.no_grad()
def _layer_from_torch(theirs: Any, number: int) -> Any:
    kind, name, names = next(
        (k, n, p) for k, their_name, n, p in _LAYERS if isinstance(theirs, their_name)
    )
    for child, module in theirs.named_children():
        expected = _KINDS.get(child.rstrip("0123456789"))
        if expected and not isinstance(module, expected):
            raise ValueError(
                f"its {child} is of type {type(module).__name__}, ours of type {expected[0].__name__}"
            )
    ours = kind(_settings(theirs), f"{name}.{number}").to(theirs.linear1.weight)
    for our_name, their_name in names.items():
        if our_name.endswith("attention"):
            setattr(ours, our_name, attention_from_torch(getattr(theirs, their_name)))
            getattr(ours, our_name).dropout = 0.0
        else:
            _copy(theirs.get_submodule(their_name), ours.get_submodule(our_name))
    return ours.train(theirs.training)


@torch.no_grad()
def _layer_to_torch(ours: Any) -> Any:
    kind, names = next((their_name, p) for k, their_name, _, p in _LAYERS if isinstance(ours, k))
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
    for our_name, their_name in names.items():
        if our_name.endswith("attention"):
            setattr(theirs, their_name, attention_to_torch(getattr(ours, our_name)))
        else:
            _copy(ours.get_submodule(our_name), theirs.get_submodule(their_name))
    return theirs.train(ours.training)


def _stack_to_torch(ours: EncoderStack | DecoderStack) -> Any:
    layers = [to_torch(layer) for layer in ours.layers]
    theirs: Any
    if isinstance(ours, EncoderStack):
        theirs = nn.TransformerEncoder(layers[0], 0, enable_nested_tensor=False)
    else:
        theirs = nn.TransformerDecoder(layers[0], 0)
    theirs.layers, theirs.num_layers = nn.ModuleList(layers), len(layers)
    theirs.norm = copy.deepcopy(ours.norm) if isinstance(ours.norm, nn.LayerNorm) else None
    return theirs.train(ours.training)


def _settings(theirs: Any) -> TransformerSettings:
    return TransformerSettings(
        width=theirs.linear1.in_features,
        heads=theirs.self_attn.num_heads,
        feed_forward=theirs.linear1.out_features,
        activation=_activation(theirs.activation),
        norm="pre" if theirs.norm_first else "post",
        dropout=getattr(theirs.dropout1, "p", 0.0),
        attention_bias=theirs.self_attn.in_proj_bias is not None,
    )


def _activation(activation: Any) -> Any:
    name = {nn.ReLU: "relu", nn.GELU: "gelu", nn.SiLU: "silu"}.get(type(activation))
    if name == "gelu" and activation.approximate == "tanh":
        name = "gelu_tanh"
    for name_of_ours, function in ACTIVATIONS.items():
        if name_of_ours == name or function is activation:
            return name_of_ours
    raise ValueError(f"its activation is {activation}: ours are {', '.join(ACTIVATIONS)}")


def _norm_from_torch(theirs: nn.Module | None) -> nn.LayerNorm | None:
    if theirs is not None and (not isinstance(theirs, nn.LayerNorm) or theirs.weight is None):
        raise ValueError(f"its last norm is {theirs}: ours is a LayerNorm with weights")
    return copy.deepcopy(theirs)


def _copy(source: Any, target: Any) -> None:
    """Copy weight and bias, and the epsilon of a norm; a missing bias becomes zero."""
    target.weight.copy_(source.weight)
    if target.bias is not None:
        target.bias.copy_(torch.zeros_like(target.bias) if source.bias is None else source.bias)
    if isinstance(source, nn.LayerNorm):
        target.eps = source.eps
