"""What torch's fused attention and our own were asked."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from regard.attention.kernels.request import ask
from regard.attention.masks import causal
from regard.attention.scores import ScaledDot
from regard.watching.parts import Parts, from_request


def fused_parts(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Parts:
    """F.scaled_dot_product_attention: its booleans say what may be read, as ours do.

    Its causal triangle begins at the first key, whatever the lengths.
    """
    mask = causal(align="start") if is_causal else None
    return scaled(query, key, scale, attn_mask, mask)


def scaled(
    query: Tensor,
    key: Tensor,
    scale: float | None,
    plane: Tensor | None,
    mask: Any = None,
) -> Parts:
    """A scaled dot product under a boolean or additive mask."""
    bias = None
    if plane is not None:
        if plane.is_floating_point():
            bias = plane
        else:
            mask = plane
    return Parts(query, key, score=ScaledDot(scale), bias=bias, mask=mask)


def own_parts(query: Tensor, key: Tensor, value: Tensor, **how: Any) -> Parts:
    """`regard.attend` and `regard.read`."""
    return from_request(ask(query, key, value, **how))
