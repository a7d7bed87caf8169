"""Layers of torch that compute queries and keys inside one operator.

The fast paths are one operator from the input of a layer to its output. The input is kept, and
queries and keys are computed from it when a look is requested. So a watch adds no operator.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.masks import padding
from regard.attention.masks.mask import MaskLike
from regard.loops.availability import transformed
from regard.watching import running
from regard.watching.captured import CapturedCall

KEYS = 1  # torch's mask_type of a mask (batch, keys); with 0 and 2 it has queries too


SIGNATURE = inspect.signature(F.multi_head_attention_forward)


@dataclass(frozen=True, eq=False)
class DeferredCall:
    """A call whose queries and keys are computed later, and the tensors they are computed from."""

    make: Callable[..., CapturedCall]
    held: dict[str, Tensor | None]
    crossing: bool = False  # whether the keys come from another sequence
    within: str = ""  # the submodule that this attention belongs to

    def tensors(self) -> list[Tensor]:
        return [each for each in self.held.values() if each is not None]

    def detached(self) -> DeferredCall:
        """The same call without gradients. Parameters are not detached, so no operator runs for them."""
        held = self.held.copy()
        for name, each in held.items():
            if each is not None and each.grad_fn:
                held[name] = each.detach()
        return replace(self, held=held)

    def captured(self) -> CapturedCall:
        return self.make(**self.held)


Captured = CapturedCall | DeferredCall


def native_call(*arguments: Any) -> DeferredCall:
    """nn.MultiheadAttention's fast path."""
    states, _, _, _, heads, weight, bias, _, _, mask, _, _, mask_type = arguments
    held = {"states": states, "weight": weight, "bias": bias, "mask": mask}
    return DeferredCall(partial(_fast, heads=heads, mask_type=mask_type), held)


def encoder_layer_call(*arguments: Any) -> DeferredCall:
    """nn.TransformerEncoderLayer's fast path: the whole layer in one operator."""
    states, _, heads, weight, bias, _, _, _, norm_first, eps, *norm = arguments[:12]
    mask, mask_type = arguments[-2:]
    held = {"states": states, "weight": weight, "bias": bias, "mask": mask}
    if norm_first:
        held |= {"norm_weight": norm[0], "norm_bias": norm[1]}
    make = partial(_fast, heads=heads, mask_type=mask_type, eps=eps)
    return DeferredCall(make, held, within="self_attn")


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
    both = 2 * len(weight) // 3
    projected = F.linear(states, weight[:both], bias[:both])
    query, key = (_split(each, heads) for each in projected.chunk(2, -1))
    return CapturedCall(query, key, mask=readable)


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


def weighted_call(*arguments: Any, **named: Any) -> DeferredCall:
    """nn.MultiheadAttention with need_weights."""
    bound = SIGNATURE.bind(*arguments, **named)
    bound.apply_defaults()
    of = bound.arguments
    held = {"query": of["query"], "key": of["key"], "biases": of["in_proj_bias"]}
    held |= {"key_bias": of["bias_k"], "plane": of["attn_mask"], "shut": of["key_padding_mask"]}
    packed = not of["use_separate_proj_weight"]
    names = ("in_proj_weight",) * 2 if packed else ("q_proj_weight", "k_proj_weight")
    held |= {"query_weight": of[names[0]], "key_weight": of[names[1]]}
    make = partial(_weighed, heads=of["num_heads"], zero=of["add_zero_attn"], packed=packed)
    return DeferredCall(make, held, crossing=_crosses(of["query"], of["key"]))


def _weighed(
    query: Tensor,
    key: Tensor,
    query_weight: Tensor,
    key_weight: Tensor,
    biases: Tensor | None,
    key_bias: Tensor | None,
    plane: Tensor | None,
    shut: Tensor | None,
    *,
    heads: int,
    zero: bool,
    packed: bool,
) -> CapturedCall:
    """Inputs are (length, batch, width) or (length, width). All queries may read appended keys."""
    if packed:
        query_weight, key_weight, _ = query_weight.chunk(3)
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
    return CapturedCall(queries, keys, bias=bias)


def _split(projected: Tensor, heads: int) -> Tensor:
    split: Tensor = projected.unflatten(-1, (heads, -1))
    return split.transpose(-2, -3)


def _added(
    plane: Tensor | None, shut: Tensor | None, heads: int, dtype: torch.dtype
) -> Tensor | None:
    """Both masks, in which True = may not be read, as one bias (batch, heads, queries, keys)."""
    biases = []
    if plane is not None:
        plane = _floating(plane, dtype)
        biases.append(plane.unflatten(0, (-1, heads)) if plane.ndim == 3 else plane)
    if shut is not None:
        shut = _floating(shut, dtype)
        biases.append(shut[:, None, None] if shut.ndim == 2 else shut)
    return reduce(torch.add, biases) if biases else None


def _floating(mask: Tensor, dtype: torch.dtype) -> Tensor:
    if mask.is_floating_point():
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(mask, -torch.inf)
