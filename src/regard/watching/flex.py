"""What flex_attention was asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from regard.attention.scores import ScaledDot
from regard.watching.parts import Parts
from regard.watching.placing import FlexScore
from regard.watching.rules import Rule

MODULE = "torch.nn.attention.flex_attention"


def flex_parts(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Callable[..., Tensor] | None = None,
    block_mask: Any = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    *_: Any,
    **__: Any,
) -> Parts:
    """Its arguments; the value has no part in the weights."""
    mask = None if block_mask is None else Rule(block_mask.mask_mod)
    if query.shape[0] != key.shape[0]:
        key = key.expand(query.shape[0], *key.shape[1:])
    if score_mod is None:
        return Parts(query, key, score=ScaledDot(scale), mask=mask)
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    return Parts(query, key, score=FlexScore(score_mod, factor), mask=mask)
