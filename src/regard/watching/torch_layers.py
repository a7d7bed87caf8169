"""Layers of torch that compute queries and keys inside one operator.

The fast paths are one operator from the input of a layer to its output. The input is kept, and
queries and keys are computed from it when a look is requested. So a watch adds no operator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.masks import padding
from regard.attention.masks.mask import MaskLike
from regard.loops.availability import transformed
from regard.watching import running
from regard.watching.captured import CapturedCall
from regard.watching.functions import scaled

KEYS = 1  # torch's mask_type of a mask (batch, keys); with 0 and 2 it has queries too


@dataclass(frozen=True, eq=False)
class DeferredCall:
    """A call whose queries and keys are computed later, and the tensors they are computed from."""

    held: dict[str, Tensor | None]
    make: Callable[..., CapturedCall]
    shape: tuple[int, ...] | None = None  # the shape of the look, if known
    crossing: bool = False  # whether the keys come from another sequence
    within: str = ""  # the submodule that this attention belongs to

    def tensors(self) -> list[Tensor]:
        """The distinct tensors that are kept."""
        return list({id(each): each for each in self.held.values() if each is not None}.values())

    def detached(self) -> DeferredCall:
        """The same call without gradients. Equal tensors stay one tensor."""
        free = {id(each): each.detach() if each.grad_fn else each for each in self.tensors()}
        held = {name: None if one is None else free[id(one)] for name, one in self.held.items()}
        return replace(self, held=held)

    def captured(self) -> CapturedCall:
        return self.make(**self.held)


Captured = CapturedCall | DeferredCall


def native_call(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> DeferredCall:
    """nn.MultiheadAttention's fast path."""
    held = {"states": query, "weight": qkv_weight, "bias": qkv_bias, "mask": mask}
    return DeferredCall(
        held, partial(_fast, heads=num_head, mask_type=mask_type), _square(query, num_head)
    )


def encoder_layer_call(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    *others: Any,
) -> DeferredCall:
    """nn.TransformerEncoderLayer's fast path: the whole layer in one operator."""
    *_, mask, mask_type = others
    held = {"states": src, "weight": qkv_weight, "bias": qkv_bias, "mask": mask}
    if norm_first:
        held |= {"norm_weight": norm_weight_1, "norm_bias": norm_bias_1}
    make = partial(_fast, heads=num_heads, mask_type=mask_type, eps=eps)
    return DeferredCall(held, make, _square(src, num_heads), within="self_attn")


def _square(states: Tensor, heads: int) -> tuple[int, ...] | None:
    if states.is_nested:
        return None
    batch, length, _ = states.shape
    return batch, heads, length, length


def _fast(
    states: Tensor,
    weight: Tensor,
    bias: Tensor,
    mask: Tensor | None,
    norm_weight: Tensor | None = None,
    norm_bias: Tensor | None = None,
    *,
    heads: int,
    mask_type: int | None,
    eps: float = 0.0,
) -> CapturedCall:
    """A key is masked where the mask is not 0, as in the fast paths."""
    readable: MaskLike | None = None
    if mask is not None:
        readable = ~mask.bool()
        readable = readable[:, None, None] if mask_type == KEYS else readable
    if states.is_nested:
        readable = padding([len(entry) for entry in states.unbind()])
        states = torch.nested.to_padded_tensor(states, 0.0)
    if norm_weight is not None:
        states = F.layer_norm(states, (states.shape[-1],), norm_weight, norm_bias, eps)
    weights, biases = weight.chunk(3), bias.chunk(3)
    query, key = (
        _split(F.linear(states, *each), heads)
        for each in list(zip(weights, biases, strict=True))[:2]
    )
    return scaled(query, key, None, None, readable)


def weighs(
    query: Tensor, key: Tensor, *others: Any, need_weights: bool = True, **named: Any
) -> bool:
    """Whether nn.MultiheadAttention computes weights instead of calling fused attention."""
    if _crosses(query, key):
        running.mark_two_inputs()
    return need_weights


def _crosses(query: Tensor, key: Tensor) -> bool:
    if query is key or transformed():  # a tensor of a transform has no memory
        return query is not key
    return (query.data_ptr(), query.shape) != (key.data_ptr(), key.shape)


def weighted_call(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    *_: Any,
    **__: Any,
) -> DeferredCall:
    """nn.MultiheadAttention with need_weights."""
    packed = None if use_separate_proj_weight else in_proj_weight
    held = {"query": query, "key": key, "packed": packed, "biases": in_proj_bias}
    held |= {"key_bias": bias_k, "plane": attn_mask, "shut": key_padding_mask}
    if packed is None:
        held |= {"query_weight": q_proj_weight, "key_weight": k_proj_weight}
    make = partial(_weighed, heads=num_heads, zero=add_zero_attn)
    return DeferredCall(held, make, crossing=_crosses(query, key))


def _weighed(
    query: Tensor,
    key: Tensor,
    packed: Tensor | None,
    biases: Tensor | None,
    key_bias: Tensor | None,
    plane: Tensor | None,
    shut: Tensor | None,
    query_weight: Tensor | None = None,
    key_weight: Tensor | None = None,
    *,
    heads: int,
    zero: bool,
) -> CapturedCall:
    """Inputs are (length, batch, width) or (length, width). All queries may read appended keys."""
    if packed is not None:
        query_weight, key_weight, _ = packed.chunk(3)
    if query_weight is None or key_weight is None:
        raise TypeError("nn.MultiheadAttention was called without projections")
    query_bias, own_bias, _ = (None,) * 3 if biases is None else biases.chunk(3)
    states, memory = (x.transpose(0, 1) if x.ndim == 3 else x.unsqueeze(0) for x in (query, key))
    queries = _split(F.linear(states, query_weight, query_bias), heads)
    keys = _split(F.linear(memory, key_weight, own_bias), heads)
    appended = [] if key_bias is None else [_split(key_bias, heads)]
    appended += [torch.zeros_like(keys[..., :1, :])] if zero else []
    keys = torch.cat([keys, *(each.expand_as(keys[..., :1, :]) for each in appended)], -2)
    bias = _added(plane, shut, heads, queries.dtype)
    if bias is not None:
        bias = F.pad(bias, (0, len(appended)))
    return scaled(queries, keys, None, bias)


def _split(projected: Tensor, heads: int) -> Tensor:
    split: Tensor = projected.unflatten(-1, (heads, -1))
    return split.transpose(-2, -3)


def _added(
    plane: Tensor | None, shut: Tensor | None, heads: int, dtype: torch.dtype
) -> Tensor | None:
    """Both masks, in which True = may not be read, as one bias (batch, heads, queries, keys)."""
    if plane is not None:
        plane = _floating(plane, dtype)
        plane = plane.unflatten(0, (-1, heads)) if plane.ndim == 3 else plane
    if shut is not None:
        shut = _floating(shut, dtype)
        shut = shut[:, None, None] if shut.ndim == 2 else shut
    return (
        plane + shut if plane is not None and shut is not None else shut if plane is None else plane
    )


def _floating(mask: Tensor, dtype: torch.dtype) -> Tensor:
    if mask.is_floating_point():
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(mask, -torch.inf)
