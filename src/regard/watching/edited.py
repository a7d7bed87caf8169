"""Attention functions with edited weights: each takes the original function, the edit, and its arguments."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from regard.attention.attend import look
from regard.attention.looks import Look, StoredLook
from regard.watching import functions, running, torch_layers
from regard.watching.captured import CapturedCall
from regard.watching.errors import WatchError
from regard.watching.plain import plain
from regard.watching.running import Edit


def reading(call: CapturedCall, value: Tensor, edit: Edit) -> tuple[Tensor, Tensor]:
    """The reading with edited weights, and those weights; value is (*batch, key_heads, keys, width)."""
    value = plain("value", value)
    weights = _headed(edit, call.look().weights())
    heads, own = (x.shape[-3] if x.ndim > 2 else 1 for x in (weights, value))
    if heads != own and own != 1:
        value = value.repeat_interleave(heads // own, -3)
    value = value[..., : weights.shape[-1], :]  # a static cache is longer than the keys read
    return weights.to(value.dtype) @ value, weights


def fused(
    _: Any, edit: Edit, query: Tensor, key: Tensor, value: Tensor, *more: Any, **how: Any
) -> Tensor:
    """F.scaled_dot_product_attention."""
    call = functions.fused_call(query, key, value, *more, **how)
    return reading(call.captured(), value, edit)[0]


def flex(
    _: Any, edit: Edit, query: Tensor, key: Tensor, value: Tensor, *more: Any, **how: Any
) -> Tensor:
    """flex_attention, where only its output is asked for."""
    if how.get("return_lse") or how.get("return_aux") is not None:
        raise WatchError("an edited flex_attention returns its output alone: leave out return_lse")
    return reading(functions.flex_call(query, key, value, *more, **how), value, edit)[0]


def attend(_: Any, edit: Edit, query: Tensor, key: Tensor, value: Tensor, **how: Any) -> Tensor:
    """`regard.attend`."""
    return read(_, edit, query, key, value, **how)[0]


def read(
    _: Any, edit: Edit, query: Tensor, key: Tensor, value: Tensor, **how: Any
) -> tuple[Tensor, Look]:
    """`regard.read`; the look is of the edited weights."""
    how.pop("dropout", None)
    weights = look(query, key, **how).weights()
    grouped = query.ndim == key.ndim > 4 and key.shape[-4:-2] == (query.shape[-4], 1)
    edited = _headed(edit, weights.flatten(-4, -3) if grouped else weights)
    if grouped:
        edited = edited.unflatten(-3, weights.shape[-4:-2])
    return edited.to(value.dtype) @ value, StoredLook(edited)


def weighed(original: Callable[..., Any], edit: Edit, *arguments: Any, **named: Any) -> Any:
    """nn.MultiheadAttention with weights: its fused attention, inside, reads with the edited weights."""
    call = torch_layers.weighted_call(*arguments, **named).captured()
    weights = _headed(edit, call.look().weights())
    with running.edit_is(lambda _: weights):
        output, _ = original(*arguments, **{**named, "need_weights": False})
    shown = weights.mean(-3) if named.get("average_attn_weights", True) else weights
    return output, shown if arguments[0].ndim == 3 else shown.squeeze(0)


def _headed(edit: Edit, weights: Tensor) -> Tensor:
    """Weights of three axes are of one head."""
    return edit(weights) if weights.ndim > 3 else edit(weights.unsqueeze(-3)).squeeze(-3)
