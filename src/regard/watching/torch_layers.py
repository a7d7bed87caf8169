"""Layers of torch that compute queries and keys inside one operator.

The fast paths are one operator from the input of a layer to its output. The input is kept, and
queries and keys are computed from it when a look is requested. So a watch adds no operator.
"""

import inspect
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.masks.mask import MaskLike
from regard.loops.availability import transformed
from regard.watching import running
from regard.watching.captured import CapturedCall, DeferredCall
from regard.watching.interception import register
from regard.watching.masks import Ragged, padded

KEYS = 1  # torch's mask_type of a mask (batch, keys); with 0 and 2 it has queries too


def native_call(*arguments: Any) -> DeferredCall:
    """nn.MultiheadAttention's fast path."""
    states, _, _, _, heads, weight, bias, _, _, mask, _, _, mask_type = arguments
    inputs = {"states": states, "heads": heads, "weight": weight, "bias": bias}
    return DeferredCall(_fast, inputs | {"mask": mask, "mask_type": mask_type})


def encoder_layer_call(*arguments: Any) -> DeferredCall:
    """nn.TransformerEncoderLayer's fast path: the whole layer in one operator."""
    states, _, heads, weight, bias, _, _, _, norm_first, eps, *norm = arguments[:12]
    mask, mask_type = arguments[-2:]
    inputs = {"states": states, "heads": heads, "weight": weight, "bias": bias}
    inputs |= {"mask": mask, "mask_type": mask_type}
    if norm_first:
        inputs |= {"eps": eps, "norm_weight": norm[0], "norm_bias": norm[1]}
    return DeferredCall(_fast, inputs, within="self_attn")


def _fast(
    states: Tensor,
    heads: int,
    weight: Tensor,
    bias: Tensor,
    mask: Tensor | None,
    mask_type: int | None,
    eps: float = 0.0,
    norm_weight: Tensor | None = None,
    norm_bias: Tensor | None = None,
) -> CapturedCall:
    """A key is masked where the mask is not 0, as in the fast paths."""
    readable: MaskLike | None = None
    if mask is not None:
        readable = ~mask.bool()
        readable = readable[:, None, None] if mask_type == KEYS else readable
    if states.is_nested:
        states, lengths = padded(states)
        readable = Ragged(lengths, lengths)
    if norm_weight is not None:
        states = F.layer_norm(states, (states.shape[-1],), norm_weight, norm_bias, eps)
    projected = F.linear(states, weight, bias)
    query, key, value = (_split(each, heads) for each in projected.chunk(3, -1))
    return CapturedCall(query, key, mask=readable, value=value)


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
    inputs = {name: bound.arguments[name] for name in inspect.signature(_weighed).parameters}
    return DeferredCall(_weighed, inputs, crossing=_crosses(inputs["query"], inputs["key"]))


def _weighed(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    num_heads: int,
    in_proj_weight: Tensor,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    key_padding_mask: Tensor | None,
    attn_mask: Tensor | None,
    use_separate_proj_weight: bool,
    q_proj_weight: Tensor,
    k_proj_weight: Tensor,
    v_proj_weight: Tensor,
) -> CapturedCall:
    """Inputs are (length, batch, width) or (length, width). All queries may read appended keys."""
    separate = q_proj_weight, k_proj_weight, v_proj_weight
    weights = separate if use_separate_proj_weight else in_proj_weight.chunk(3)
    biases = (None, None, None) if in_proj_bias is None else in_proj_bias.chunk(3)
    states = (x.transpose(0, 1) if x.ndim == 3 else x.unsqueeze(0) for x in (query, key, value))
    queries, keys, values = (
        _split(F.linear(x, weight, bias), num_heads)
        for x, weight, bias in zip(states, weights, biases, strict=True)
    )
    count = keys.shape[-2]
    keys = _appended(keys, bias_k, num_heads, add_zero_attn)
    values = _appended(values, bias_v, num_heads, add_zero_attn)
    bias = _added(attn_mask, key_padding_mask, num_heads, queries.dtype)
    if bias is not None:
        bias = F.pad(bias, (0, keys.shape[-2] - count))
    return CapturedCall(queries, keys, bias=bias, value=values)


def _appended(keys: Tensor, row: Tensor | None, heads: int, zeros: bool) -> Tensor:
    """Keys or values with a learned row and a row of zeros after them."""
    rows = [] if row is None else [_split(row, heads)]
    rows += [torch.zeros_like(keys[..., :1, :])] if zeros else []
    return torch.cat([keys, *(each.expand_as(keys[..., :1, :]) for each in rows)], -2)


SIGNATURE = inspect.signature(F.multi_head_attention_forward)


def _split(projected: Tensor, heads: int) -> Tensor:
    split: Tensor = projected.unflatten(-1, (heads, -1))
    return split.transpose(-2, -3)


def _added(
    plane: Tensor | None, padding: Tensor | None, heads: int, dtype: torch.dtype
) -> Tensor | None:
    """Both masks, in which True = may not be read, as one bias (batch, heads, queries, keys)."""
    biases = []
    if plane is not None:
        plane = _floating(plane, dtype)
        biases.append(plane.unflatten(0, (-1, heads)) if plane.ndim == 3 else plane)
    if padding is not None:
        padding = _floating(padding, dtype)
        biases.append(padding[:, None, None] if padding.ndim == 2 else padding)
    return reduce(torch.add, biases) if biases else None


def _floating(mask: Tensor, dtype: torch.dtype) -> Tensor:
    if mask.is_floating_point():
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(mask, -torch.inf)


def _read_weighed(weights: Tensor, *arguments: Any, **named: Any) -> Any:
    """nn.MultiheadAttention with weights: its fused attention, inside, reads with the edited weights."""
    named = {**named, "need_weights": False}
    average = named.pop("average_attn_weights", True)
    with running.weights_are(weights):
        output, _ = F.multi_head_attention_forward(*arguments, **named)
    returned = weights.mean(-3) if average else weights
    return output, returned if arguments[0].ndim == 3 else returned.squeeze(0)


register("torch._native_multi_head_attention", native_call)
register("torch._transformer_encoder_layer_fwd", encoder_layer_call)
register(
    "torch.nn.functional.multi_head_attention_forward",
    weighted_call,
    read=_read_weighed,
    when=weighs,
    encloses=True,
)
