"""torch's own fused attention, for every score that is a dot product of something."""

from math import prod

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.kernels.dots import dots_objection, factors, opened
from regard.attention.kernels.request import Request
from regard.attention.kernels.tiled import Plan, plan_for, read_tiles
from regard.attention.masks.positions import Band
from regard.attention.products import product_dtype
from regard.attention.shapes import Shape, broadcast
from regard.loops.availability import in_forward_mode, transformed


class Sdpa:
    name = "sdpa"

    def objection(self, request: Request, value: Tensor) -> str | None:
        if objection := dots_objection(request, value):
            return objection
        if in_forward_mode():
            return "torch's fused attention has no forward-mode derivatives: pin regard.kernel('matmul')"
        batch = request.frame.batch
        if _is_mixed(request.key.shape[:-2], batch) or _is_mixed(value.shape[:-2], batch):
            return "keys or values broadcast over an axis between others: they would be copied"
        return None

    def attend(self, request: Request, value: Tensor) -> Tensor:
        query, key, scale = factors(request)
        batch, open_, nothing = request.frame.batch, None, None
        triangle = request.mask is not None and _is_triangle(request)
        plan = None if triangle or request.mask is None else plan_for(request)
        if plan is not None:
            return _tiled(plan, request, query, key, value, scale)
        if not triangle and (request.mask is not None or request.bias is not None):
            # On a CPU torch reads zeros where there is nothing to read; elsewhere it may divide by 0.
            open_, nothing = opened(request, product_dtype(query), blank=not query.is_cpu)
        if open_ is not None and open_.ndim > 2:
            batch = broadcast(batch, tuple(open_.shape[:-2]))
        reading = F.scaled_dot_product_attention(
            _flat(query, batch),
            _flat(key, batch),
            _flat(value, batch),
            attn_mask=None if open_ is None else _flat(open_, batch),
            dropout_p=request.dropout,
            is_causal=triangle,
            scale=scale,
        )
        if len(batch) != 2:
            reading = reading.reshape(*batch, request.queries, value.shape[-1])
        return reading if nothing is None else reading.masked_fill(nothing, 0.0)


def _tiled(
    plan: Plan, request: Request, query: Tensor, key: Tensor, value: Tensor, scale: float
) -> Tensor:
    batch, kind, d_value = request.frame.batch, product_dtype(query), value.shape[-1]
    if len(batch) == 1:  # it stays the first of two axes: the tiles may differ along it
        batch, (query, key, value) = (*batch, 1), (t.unsqueeze(-3) for t in (query, key, value))
    query, key, value = (_flat(tensor.to(kind), batch) for tensor in (query, key, value))
    reading = read_tiles(plan, query, key, value, scale)
    return reading.reshape(*request.frame.batch, request.queries, d_value)


def _is_triangle(request: Request) -> bool:
    mask = request.mask
    if request.bias is not None or not isinstance(mask, Band):
        return False
    if mask.align == "end" and transformed():
        return _are_equal(request.queries, request.keys) and mask.is_triangle(1, 1)
    return mask.is_triangle(request.queries, request.keys)


def _are_equal(queries: int, keys: int) -> bool:
    """Whether two lengths are equal for all sizes that a compiled graph serves."""
    if torch._C._get_tracing_state() is not None:  # they are recorded, and may differ later
        return False
    from torch.fx.experimental.symbolic_shapes import statically_known_true  # loads sympy

    return statically_known_true(queries == keys)


def _is_mixed(shape: Shape, batch: Shape) -> bool:
    """Whether the axes before the last broadcast only in part, so that no view can merge them."""
    if shape == batch:
        return False
    front = ((1,) * (len(batch) - len(shape)) + tuple(shape))[:-1]
    return len(front) > 1 and front != batch[:-1] and prod(front) != 1


def _flat(tensor: Tensor, batch: Shape) -> Tensor:
    """The tensor as (batch, heads, length, width), expanded without a copy where a view can."""
    if tensor.ndim == 4 and tensor.shape[:2] == batch:
        return tensor
    length, width = tensor.shape[-2:]
    own, heads = tensor.shape[-3] if tensor.ndim > 2 else 1, batch[-1] if batch else 1
    if tensor.shape[:-2] != batch:
        tensor = tensor.expand(*batch[:-1], own, length, width)
    joined = tensor.reshape(prod(batch[:-1]), own, length, width)
    return joined.expand(-1, heads, length, width)
