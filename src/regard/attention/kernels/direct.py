"""Plain calls on a processor, straight to torch's fused attention, without gradients.

The checks of a request and the choice of a kernel take twice as long as eight queries over eight keys do.
"""

from math import prod
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.kernels.choose import pinned
from regard.attention.kernels.dots import added
from regard.attention.kernels.request import framed
from regard.attention.kernels.tiled import AREA
from regard.attention.kernels.zeroed import are_finite
from regard.attention.masks import Mask, MaskLike
from regard.attention.masks.layout import Layout, lay
from regard.attention.masks.positions import Band
from regard.loops.availability import in_forward_mode, transformed

DTYPES = (torch.float32, torch.float64)


def read_directly(
    query: Tensor, key: Tensor, value: Tensor, mask: MaskLike | None
) -> Tensor | None:
    """The reading; None where a request must be checked, or served in another way."""
    if not (type(query) is type(key) is type(value) is Tensor) or transformed():
        return None
    dtype, shape = query.dtype, query.shape
    if not (dtype in DTYPES and key.dtype == value.dtype == dtype):
        return None
    if not (query.is_cpu and key.is_cpu and value.is_cpu) or torch.is_autocast_enabled("cpu"):
        return None
    trained = query.requires_grad or key.requires_grad or value.requires_grad
    if (trained and torch.is_grad_enabled()) or in_forward_mode() or pinned():
        return None
    frame, is_regular = framed(shape, key.shape, value.shape, query.device)
    if not is_regular or len(shape) not in (3, 4) or shape[-1] != key.shape[-1]:
        return None
    if mask is None:
        return _fused(query, key, value)
    if not isinstance(mask, Mask):
        return None
    layout = lay(mask, frame, False)
    plan: Plan | None = layout.once(("plan", dtype), lambda: _plan(layout, mask, dtype))
    if plan is None:
        return None
    if plan.columns is None:
        reading = _fused(query, key, value, plan.addend, plan.is_triangle)
        return reading if are_finite(reading) else None
    start, keys = plan.columns.start, len(plan.columns)
    if keys == frame.keys:
        return _fused(query, key, value)
    return _fused(query, key.narrow(-2, start, keys), value.narrow(-2, start, keys))


class Plan(NamedTuple):
    """A mask as torch's fused attention takes it: a run of keys for all queries, a triangle, or numbers to add."""

    columns: range | None = None
    is_triangle: bool = False
    addend: Tensor | None = None


def _plan(layout: Layout, mask: Mask, dtype: torch.dtype) -> Plan | None:
    """The plan for a mask; None where tiles or other batch axes are needed."""
    batch, queries, keys, _ = layout.frame
    columns = layout.common_keys()
    if columns is not None:
        return Plan(columns)
    if isinstance(mask, Band) and mask.is_triangle(queries, keys):
        return Plan(is_triangle=True)
    if prod(batch) * queries * keys >= AREA or layout.batch() != batch:
        return None
    addend = added(layout, dtype)
    return Plan(addend=addend[None] if addend.ndim == 3 else addend)


def _fused(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    addend: Tensor | None = None,
    is_causal: bool = False,
) -> Tensor:
    if query.ndim == 4:
        return F.scaled_dot_product_attention(query, key, value, addend, 0.0, is_causal)
    # torch is four times as slow on three axes.
    reading = F.scaled_dot_product_attention(
        query[None], key[None], value[None], addend, 0.0, is_causal
    )
    return reading[0]
