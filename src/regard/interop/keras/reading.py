"""A layer of Keras as arrays, and Keras' layers as ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.attention.heads import MultiHeadAttention
from regard.attention.scores import Additive, Dot, ScaledDot
from regard.interop.heads import PROJECTIONS

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class KerasLayer:
    """A layer of Keras, as arrays.

    Attributes:
        kind: its class: "Attention", "AdditiveAttention", "MultiHeadAttention", "GroupQueryAttention".
        config: the keys of its `get_config` that change its output.
        weights: of its `get_weights`, in that order.
        shapes: of query, value and key, without the batch, to build it with.
    """

    kind: str
    config: dict[str, Any]
    weights: list[Array]
    shapes: tuple[tuple[int | None, ...], ...] = ()

    def build(self, **options: Any) -> Any:
        """The layer itself, built and filled. Imports Keras; ``options`` go to its constructor (``dtype=``, ...)."""
        import keras

        layer = getattr(keras.layers, self.kind)(**self.config, **options)
        shapes = [(None, *shape) for shape in self.shapes]
        if self.kind in ("Attention", "AdditiveAttention"):
            layer.build(shapes)
        else:
            layer.build(*shapes)
        layer.set_weights(self.weights)
        return layer


def from_keras(layer: Any) -> Any:
    """Our counterpart of a layer of Keras.

    ==========================  ===========================================================================
    Attention, "dot"            `Dot`, or `ScaledDot(scale)` where it has a scale: for ``regard.attend(..., score=)``
    Attention, "concat"         `Additive`, with scale x identity as both projections and its one scalar as v
    AdditiveAttention           `Additive`, with identities as both projections: it has none
    MultiHeadAttention          `regard.MultiHeadAttention`
    GroupQueryAttention         `regard.MultiHeadAttention` with ``key_heads``
    ==========================  ===========================================================================

    Args:
        layer: a layer that was built, or a `KerasLayer`.

    Raises:
        TypeError: If it is another layer.
        ValueError: If ours has no counterpart of a part of it, or it has not been built.

    Example:
        >>> from_keras(KerasLayer("Attention", {"use_scale": True}, [torch.tensor(0.5)]))
        ScaledDot(scale=0.5)
    """
    own = isinstance(layer, KerasLayer)
    name = layer.kind if own else type(layer).__name__
    kind = name.replace("Grouped", "Group")  # the class and its public name
    if kind not in _READERS:
        raise TypeError(f"got a {name}: known are {', '.join(_READERS)}")
    config, weights = (
        (layer.config, layer.weights) if own else (_config(layer), layer.get_weights())
    )
    return _READERS[kind](config, [torch.as_tensor(weight).detach() for weight in weights])


def _config(layer: Any) -> dict[str, Any]:
    """The configuration of a layer, and the width of the queries that it was built for."""
    config: dict[str, Any] = layer.get_config()
    shapes = (layer.get_build_config() or {}).get("input_shape")
    if isinstance(shapes, list | tuple) and shapes and isinstance(shapes[0], list | tuple):
        config["width"] = shapes[0][-1]
    return config


def _attention(config: dict[str, Any], weights: Sequence[Tensor]) -> Dot | ScaledDot | Additive:
    scaled, added = config.get("use_scale", False), config.get("score_mode", "dot") == "concat"
    _count(weights, scaled + added)
    scale = weights[0].item() if scaled else 1.0
    if added:
        width = _width(config)
        eye = torch.eye(width, dtype=weights[-1].dtype)
        return _additive(scale * eye, weights[-1].expand(width))
    return ScaledDot(scale) if scaled else Dot()


def _additive_attention(config: dict[str, Any], weights: Sequence[Tensor]) -> Additive:
    scaled = config.get("use_scale", True)
    _count(weights, int(scaled))
    weight = weights[0] if scaled else torch.ones(_width(config))
    return _additive(torch.eye(len(weight)), weight)


def _width(config: dict[str, Any]) -> int:
    if "width" not in config:
        raise ValueError(
            "no weight of the layer has the width of its queries and keys: "
            'pass a KerasLayer whose config also has "width"'
        )
    return int(config["width"])


@torch.no_grad()
def _additive(projection: Tensor, weight: Tensor) -> Additive:
    width = len(weight)
    score = Additive(width, width, width).to(weight)
    score.query_weight.copy_(projection)
    score.key_weight.copy_(projection)
    score.weight.copy_(weight)
    return score


@torch.no_grad()
def _heads(config: dict[str, Any], weights: Sequence[Tensor]) -> MultiHeadAttention:
    axes = config.get("attention_axes")
    if axes is not None and tuple(axes) != (1,):
        raise ValueError(
            f"attention_axes is {axes}: ours attends along the one axis before the last"
        )
    output = config.get("output_shape")
    if output is not None and not isinstance(output, int) and len(output) != 1:
        raise ValueError(f"output_shape is {output}: ours has one axis of output")
    if config.get("use_gate"):
        raise ValueError("use_gate is True: ours has no gate on its readings")
    window = config.get("sliding_window")
    if window is not None:
        raise ValueError(
            f"sliding_window is {window}: ours takes it at every call, as a mask; make the layer without and pass "
            f"mask=masks.band({window - 1}, {window - 1})"
        )
    bias = config.get("use_bias", True)
    _count(weights, 8 if bias else 4)
    kernels = list(weights[::2] if bias else weights)
    (d_query, heads, d_head), (d_key, key_heads, _) = kernels[0].shape, kernels[1].shape
    d_value, _, d_head_value = kernels[2].shape
    ours = MultiHeadAttention(
        d_query,
        heads,
        d_key=d_key,
        d_value=d_value,
        d_head=d_head,
        d_head_value=d_head_value,
        d_output=kernels[3].shape[-1],
        bias=bias,
        dropout=config.get("dropout", 0.0),
        key_heads=key_heads,
    ).to(kernels[0])
    for place, name in enumerate(PROJECTIONS):
        projection = getattr(ours, name)
        projection.weight.copy_(kernels[place].reshape(projection.in_features, -1).T)
        if bias:
            projection.bias.copy_(weights[2 * place + 1].flatten())
    return ours.eval()


def _count(weights: Sequence[Tensor], expected: int) -> None:
    if len(weights) != expected:
        raise ValueError(
            f"the layer has {len(weights)} weights, its configuration asks for {expected}: call or build it first"
        )


_READERS: dict[str, Callable[[dict[str, Any], Sequence[Tensor]], Any]] = {
    "Attention": _attention,
    "AdditiveAttention": _additive_attention,
    "MultiHeadAttention": _heads,
    "GroupQueryAttention": _heads,
}
