"""Keras 3's attention layers as scores and modules of ours, and back, by their arrays: no Keras is imported to do it.

A `KerasLayer` is what a layer of Keras says of itself: its class, its configuration and its weights in its own order.
`from_keras` takes one, or a layer; `to_keras` gives one, and `KerasLayer.build` makes the layer of it.

Keras' masks have our polarity: True = may be read. Its layers are called with (query, value, key), ours with
(query, key, value).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.attention.heads import MultiHeadAttention
from regard.attention.scores import Additive, Dot, ScaledDot
from regard.interop.altered import refuse_altered
from regard.interop.heads import PROJECTIONS, check_plain

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
        ValueError: If ours has no counterpart of a part of it, or it has not been built, or it may compute something
            else than Keras' class: a subclass, hooks, or a replaced method.

    Example:
        >>> from_keras(KerasLayer("Attention", {"use_scale": True}, [torch.tensor(0.5)]))
        ScaledDot(scale=0.5)
    """
    is_ours = isinstance(layer, KerasLayer)
    names = [layer.kind] if is_ours else [kind.__name__ for kind in type(layer).__mro__]
    # The class GroupedQueryAttention has the public name GroupQueryAttention.
    kinds = [name.replace("Grouped", "Group") for name in names]
    kind = next((each for each in kinds if each in _READERS), None)
    if kind is None:
        raise TypeError(f"got a {names[0]}: known are {', '.join(_READERS)}")
    if not is_ours:
        refuse_altered(layer, ValueError, ("keras",))
    config, weights = (
        (layer.config, layer.weights) if is_ours else (_config(layer), layer.get_weights())
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


@torch.no_grad()
def to_keras(ours: Any, *, width: int | None = None, key_heads: int | None = None) -> KerasLayer:
    """A layer of Keras that computes what ours does.

    Args:
        ours: a `Dot`, `ScaledDot`, `Additive` or `MultiHeadAttention`.
        width: of queries and keys; needed for the dots, which have none of their own.
        key_heads: give a GroupQueryAttention with so many heads of keys and values; the heads of a group must be
            equal.

    Raises:
        TypeError: If it is something else.
        ValueError: If Keras has no such layer, or ours overrides methods, or has hooks; the part is named.
    """
    if not isinstance(ours, Dot | ScaledDot | Additive | MultiHeadAttention):
        raise TypeError(
            f"got a {type(ours).__name__}: pass a Dot, ScaledDot, Additive or MultiHeadAttention of regard"
        )
    refuse_altered(ours, ValueError)
    if isinstance(ours, MultiHeadAttention):
        return _heads_to_keras(ours, key_heads)
    return _additive_to_keras(ours) if isinstance(ours, Additive) else _dot_to_keras(ours, width)


def _dot_to_keras(ours: Dot | ScaledDot, width: int | None) -> KerasLayer:
    if width is None:
        raise ValueError(
            "a dot product has no width of its own: pass width=, that of queries and keys"
        )
    shapes = ((None, width), (None, width))
    if isinstance(ours, Dot):
        return KerasLayer("Attention", {}, [], shapes)
    scale = width**-0.5 if ours.scale is None else ours.scale
    return KerasLayer("Attention", {"use_scale": True}, [np.float32(scale)], shapes)  # type: ignore[list-item]


def _additive_to_keras(ours: Additive) -> KerasLayer:
    width, scale = ours.d_query, ours.query_weight[0, 0]
    identity = scale * torch.eye(width).to(ours.query_weight)
    plain = ours.bias is None and ours.weight.dim() == 1
    if not plain or not all(
        torch.equal(weight, identity) for weight in (ours.query_weight, ours.key_weight)
    ):
        raise ValueError(
            "it projects queries and keys, or has a bias or heads: Keras' layers add queries and keys as they are; "
            "project them before"
        )
    shapes = ((None, width), (None, width))
    if scale == 1:
        return KerasLayer("AdditiveAttention", {}, [_array(ours.weight)], shapes)
    if not bool((ours.weight == ours.weight[0]).all()):
        raise ValueError(
            f"it scales what is added by {scale:g} and weighs it by a vector: Keras' concat has one number for all, "
            "its AdditiveAttention no scale"
        )
    config = {"use_scale": True, "score_mode": "concat"}
    return KerasLayer("Attention", config, [_array(scale), _array(ours.weight[0])], shapes)


def _heads_to_keras(ours: MultiHeadAttention, key_heads: int | None) -> KerasLayer:
    check_plain(ours, "Keras'")
    query_side = ours.heads, ours.d_head
    sides = [query_side, (ours.key_heads, ours.d_head), (ours.key_heads, ours.d_head_value)]
    weights: list[Tensor] = []
    for name, side in zip(PROJECTIONS, sides, strict=False):
        projection = getattr(ours, name)
        weights.append(projection.weight.T.unflatten(1, side))
        if projection.bias is not None:
            weights.append(projection.bias.view(side))
    output = ours.output_projection
    weights.append(output.weight.T.unflatten(0, (ours.heads, ours.d_head_value)))
    if output.bias is not None:
        weights.append(output.bias)
    shapes = ((None, ours.d_query), (None, ours.d_value), (None, ours.d_key))
    if key_heads is not None or ours.group > 1:
        return _grouped_to_keras(ours, key_heads or ours.key_heads, weights, shapes)
    config = {
        "num_heads": ours.heads,
        "key_dim": ours.d_head,
        "value_dim": ours.d_head_value,
        "output_shape": ours.d_output,
        "use_bias": output.bias is not None,
        "dropout": ours.dropout,
    }
    return KerasLayer("MultiHeadAttention", config, [_array(w) for w in weights], shapes)


def _grouped_to_keras(
    ours: MultiHeadAttention, key_heads: int, weights: list[Tensor], shapes: Any
) -> KerasLayer:
    if key_heads < 1 or ours.key_heads % key_heads:
        raise ValueError(
            f"key_heads is {key_heads}: pass a divisor of {ours.key_heads}, the heads of its keys"
        )
    if ours.d_head_value != ours.d_head or ours.d_output != ours.d_query:
        raise ValueError(
            "grouped heads of Keras have values as wide as keys, and give back the width they got"
        )
    tensors_each, times = len(weights) // 4, ours.key_heads // key_heads
    for place in range(tensors_each, 3 * tensors_each):
        groups = weights[place].unflatten(-2, (key_heads, times))
        if not torch.equal(groups, groups[..., :1, :].expand_as(groups)):
            raise ValueError(
                f"the {times} heads of a group differ: they cannot share one head of keys and values"
            )
        weights[place] = groups[..., 0, :]
    config = {
        "head_dim": ours.d_head,
        "num_query_heads": ours.heads,
        "num_key_value_heads": key_heads,
        "use_bias": tensors_each == 2,
        "dropout": ours.dropout,
    }
    return KerasLayer("GroupQueryAttention", config, [_array(w) for w in weights], shapes)


def _array(tensor: Tensor) -> Array:
    array: Array = tensor.detach().cpu().numpy().copy()
    return array
