"""The arguments of attention functions, as captured calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import Tensor

from regard.attention.kernels.request import ask
from regard.attention.masks import MaskLike, causal
from regard.attention.scores import ScaledDot
from regard.watching.captured import CapturedCall, from_request
from regard.watching.flex import FlexMask, FlexScore

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
) -> CapturedCall:
    """F.scaled_dot_product_attention. In its boolean masks True = may be read.

    Its causal mask is aligned at the first key, for any lengths.
    """
    mask = causal(align="start") if is_causal else None
    return scaled(query, key, scale, attn_mask, mask)


def scaled(
    query: Tensor,
    key: Tensor,
    scale: float | None,
    plane: Tensor | None,
    mask: MaskLike | None = None,
) -> CapturedCall:
    """A scaled dot product under a boolean or additive mask."""
    bias = None
    if plane is not None:
        if plane.is_floating_point():
            bias = plane
        else:
            mask = plane
    return CapturedCall(query, key, score=ScaledDot(scale), bias=bias, mask=mask)


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
    if score_mod is None:
        return CapturedCall(query, key, score=ScaledDot(scale), mask=mask)
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    return CapturedCall(query, key, score=FlexScore(score_mod, factor), mask=mask)


def regard_call(query: Tensor, key: Tensor, value: Tensor, **how: Any) -> CapturedCall:
    """`regard.attend` and `regard.read`."""
    return from_request(ask(query, key, value, **how))
