"""Ours as Keras' layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.attention.heads import MultiHeadAttention
from regard.attention.scores import Additive, Dot, ScaledDot
from regard.interop.heads import PROJECTIONS, check_plain
from regard.interop.keras.reading import Array, KerasLayer


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
        ValueError: If Keras has no such layer; the part is named.
    """
    if type(ours) in (Dot, ScaledDot):
        return _dot_to_keras(ours, width)
    if type(ours) is Additive:
        return _additive_to_keras(ours)
    if isinstance(ours, MultiHeadAttention):
        return _heads_to_keras(ours, key_heads)
    raise TypeError(
        f"got a {type(ours).__name__}: pass a Dot, ScaledDot, Additive or MultiHeadAttention of regard"
    )


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
    first = ours.heads, ours.d_head
    sides = [first, (ours.key_heads, ours.d_head), (ours.key_heads, ours.d_head_value)]
    weights: list[Tensor] = []
    for name, side in zip(PROJECTIONS, sides, strict=False):
        projection = getattr(ours, name)
        weights.append(projection.weight.T.unflatten(1, side))
        if projection.bias is not None:
            weights.append(projection.bias.view(side))
    last = ours.output_projection
    weights.append(last.weight.T.unflatten(0, (ours.heads, ours.d_head_value)))
    if last.bias is not None:
        weights.append(last.bias)
    shapes = ((None, ours.d_query), (None, ours.d_value), (None, ours.d_key))
    if key_heads is not None or ours.group > 1:
        return _grouped_to_keras(ours, key_heads or ours.key_heads, weights, shapes)
    config = {
        "num_heads": ours.heads,
        "key_dim": ours.d_head,
        "value_dim": ours.d_head_value,
        "output_shape": ours.d_output,
        "use_bias": last.bias is not None,
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
    each, times = len(weights) // 4, ours.key_heads // key_heads
    for place in range(each, 3 * each):
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
        "use_bias": each == 2,
        "dropout": ours.dropout,
    }
    return KerasLayer("GroupQueryAttention", config, [_array(w) for w in weights], shapes)


def _array(tensor: Tensor) -> Array:
    found: Array = tensor.detach().cpu().numpy().copy()
    return found
