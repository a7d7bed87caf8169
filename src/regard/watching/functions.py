"""Adapters of fused attention, flex_attention and Regard's own functions, and `regard.declare`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jaxtyping import Float
from torch import Tensor

from regard.attention.kernels.request import ask, causal_bias
from regard.attention.looks import Look, StoredLook
from regard.attention.looks.entries import ChangedScore, merge
from regard.attention.masks import MaskLike, as_mask, causal
from regard.attention.normalisers import Normaliser
from regard.attention.scores import ScaledDot, Score
from regard.watching import running
from regard.watching.captured import Captured, CapturedCall, DeferredCall, check, plain
from regard.watching.errors import WatchError
from regard.watching.interception import register
from regard.watching.masks import FlexMask, FlexScore, Ragged, padded

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask


def fused_call(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Captured:
    """F.scaled_dot_product_attention. In its boolean masks True = may be read.

    Its causal mask is aligned at the first key, for any lengths.
    """
    mask: MaskLike | None = causal(align="start") if is_causal else None
    if query.is_nested and key.is_nested:
        inputs = {"query": query, "key": key, "value": value, "mask": mask, "scale": scale}
        return DeferredCall(_ragged, inputs)
    readable, bias = mask_of(attn_mask, query.shape[-2], key.shape[-2])
    mask = readable if mask is None else mask
    return CapturedCall(query, key, score=ScaledDot(scale), bias=bias, mask=mask, value=value)


def mask_of(mask: Tensor | None, queries: int, keys: int) -> tuple[MaskLike | None, Tensor | None]:
    """The `attn_mask` of scaled_dot_product_attention as (mask, None) or (None, bias)."""
    if mask is None:
        return None, None
    if type(mask) is not Tensor and isinstance(mask, causal_bias()):
        return _aligned(mask, queries, keys), None
    return (None, mask) if mask.is_floating_point() else (mask, None)


def _aligned(bias: Any, queries: int, keys: int) -> MaskLike:
    """The mask that a CausalBias of torch stands for."""
    if bias.variant.name == "UPPER_LEFT":  # torch reads no lengths of this one
        return causal(align="start")
    lengths = bias.seq_len_q, bias.seq_len_kv
    if lengths != (queries, keys):
        raise WatchError(
            f"its mask is causal_lower_right{lengths} for {queries} queries and {keys} keys"
        )
    return causal(align="end")


def _ragged(
    query: Tensor, key: Tensor, value: Tensor, mask: MaskLike | None, scale: float | None
) -> CapturedCall:
    """scaled_dot_product_attention of nested tensors, which takes no mask beside the causal one."""
    (query, queries), (key, keys) = padded(query), padded(key)
    lengths: MaskLike = Ragged(queries, keys)
    mask = lengths if mask is None else as_mask(mask) & lengths
    return CapturedCall(query, key, score=ScaledDot(scale), mask=mask, value=padded(value)[0])


def flex_call(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Callable[..., Tensor] | None = None,
    block_mask: BlockMask | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    *_: Any,
    **__: Any,
) -> CapturedCall:
    """flex_attention; the value does not affect the weights."""
    mask = None if block_mask is None else FlexMask(block_mask.mask_mod)
    if query.shape[0] != key.shape[0]:
        key = key.expand(query.shape[0], *key.shape[1:])
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    score = ScaledDot(scale) if score_mod is None else FlexScore(score_mod, factor)
    return CapturedCall(query, key, score=score, mask=mask, value=value)


def regard_call(
    query: Tensor, key: Tensor, value: Tensor | None = None, **options: Any
) -> CapturedCall:
    """`regard.attend` and `regard.read`. Grouped heads become heads with fewer key heads."""
    check("query", query)
    check("key", key)
    request = ask(query, key, value, **options).written()
    if query.ndim == key.ndim > 4 and key.shape[-3] == 1 and key.shape[-4] == query.shape[-4]:
        merged = merge(replace(request, key=key[..., :0, :]), request.batch())  # copies no keys
        if not isinstance(merged.score, ChangedScore):
            request, key = merged, key.squeeze(-3)
            value = value if value is None or value.ndim < 5 else value.squeeze(-3)
    score, bias, normaliser = request.score, request.bias, request.normaliser
    return CapturedCall(request.query, key, score, bias, request.mask, normaliser, value=value)


def reading(weights: Tensor, value: Tensor) -> Tensor:
    """The reading with these weights; value is (*batch, key_heads, keys, width)."""
    value = plain("value", value)
    heads, value_heads = (x.shape[-3] if x.ndim > 2 else 1 for x in (weights, value))
    if heads != value_heads and value_heads != 1:
        value = value.repeat_interleave(heads // value_heads, -3)
    value = value[..., : weights.shape[-1], :]  # a static cache is longer than the keys read
    return weights.to(value.dtype) @ value


def _read_fused(
    weights: Tensor, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any
) -> Tensor:
    return reading(weights, value)


def _read_flex(
    weights: Tensor, query: Tensor, key: Tensor, value: Tensor, *_: Any, **options: Any
) -> Tensor:
    if options.get("return_lse") or options.get("return_aux") is not None:
        raise WatchError("an edited flex_attention returns its output alone: leave out return_lse")
    return reading(weights, value)


def _read_regard(
    weights: Tensor, query: Tensor, key: Tensor, value: Tensor, **_: Any
) -> tuple[Tensor, Look]:
    if query.ndim > weights.ndim and query.ndim > 4:  # grouped heads were merged
        weights = weights.unflatten(-3, query.shape[-4:-2])
        value = value if value.ndim == query.ndim else value.unflatten(-3, query.shape[-4:-2])
    return weights.to(value.dtype) @ value, StoredLook(weights)


def _grouped(outputs: Tensor, query: Tensor, *_: Any, **__: Any) -> Tensor:
    """Outputs of heads, with the axis of their groups if the queries have one."""
    grouped = query.ndim > outputs.ndim and query.ndim > 4
    return outputs.unflatten(-3, query.shape[-4:-2]) if grouped else outputs


register(
    "torch.nn.functional.scaled_dot_product_attention",
    fused_call,
    read=_read_fused,
    layout=lambda outputs, *_, **__: outputs,
)
register("torch.nn.attention.flex_attention.flex_attention", flex_call, read=_read_flex)
register("regard.attention.attend.read", regard_call, read=_read_regard)
for path in (
    "regard.attention.attend.attend",
    "regard.attention.kernels.additive.steps.attend_step",
):
    register(
        path,
        regard_call,
        read=lambda *arguments, **options: _read_regard(*arguments, **options)[0],
        layout=_grouped,
    )


def declare(
    query: Float[Tensor, "*#batch queries d_query"],
    key: Float[Tensor, "*#batch keys d_key"],
    *,
    value: Float[Tensor, "*#batch keys d_value"] | None = None,
    score: Score | None = None,
    bias: Float[Tensor, "..."] | None = None,
    mask: MaskLike | None = None,
    normaliser: Normaliser | Callable[[Tensor], Tensor] | None = None,
) -> None:
    """Report the arguments of an attention to the open watches, if there are any.

    Call it in a module whose own code computes softmax(Q K^T / sqrt(d)) V, which a watch cannot
    detect. The output of the module does not change.

    The arguments are those of `regard.look`, and the values, for watches that keep them. The score is
    the scaled dot product by default. In the mask, True = may be read.

    Example:
        >>> import torch, regard
        >>> class ByHand(torch.nn.Module):
        ...     def forward(self, x):
        ...         regard.declare(x, x)
        ...         return torch.softmax(x @ x.mT / x.shape[-1] ** 0.5, -1) @ x
        >>> model = ByHand()
        >>> with regard.watch(model) as seen:
        ...     output = model(torch.eye(2))
        >>> torch.equal(seen["self"].weights() @ torch.eye(2), output)
        True
    """
    if running.is_observed():
        running.attention_begins((query, key), {})
        running.report_attention(
            lambda: regard_call(
                query, key, value, score=score, bias=bias, mask=mask, normaliser=normaliser
            )
        )
