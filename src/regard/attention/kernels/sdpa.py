"""torch's own fused attention, for every score that is a dot product of something."""

from math import prod

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.kernels.dots import additive_mask, dots_objection, factors
from regard.attention.kernels.pieces import flat
from regard.attention.kernels.request import Request
from regard.attention.kernels.tiled import read_tiles
from regard.attention.masks.positions import Band
from regard.attention.products import product_dtype
from regard.attention.shapes import Shape
from regard.loops.availability import in_forward_mode, transformed


class Sdpa:
    name = "sdpa"

    def objection(self, request: Request, value: Tensor) -> str | None:
        return dots_objection(request, value) or self.shape_objection(request, value)

    def shape_objection(self, request: Request, value: Tensor) -> str | None:
        """The objection to a softmax over dot products."""
        if in_forward_mode():
            return "torch's fused attention has no forward-mode derivatives: pin regard.kernel('matmul')"
        batch = request.frame.batch
        if request.is_regular:
            return None
        if _is_mixed(request.key.shape[:-2], batch) or _is_mixed(value.shape[:-2], batch):
            return "keys or values broadcast over an axis between others: they would be copied"
        return None

    def attend(self, request: Request, value: Tensor) -> Tensor:
        triangle = request.mask is not None and is_triangle(request)
        is_masked = request.is_masked and not triangle
        if is_masked and (tiled := read_tiles(request, value, fused=True)) is not None:
            return tiled
        request = request.written()
        query, key, scale = factors(request)
        batch, addend, nothing = request.frame.batch, None, None
        is_flat = request.is_regular and len(batch) == 2 and query is request.query
        if is_masked:
            # On a CPU torch reads zeros where there is nothing to read; elsewhere it may divide by 0.
            addend, nothing = additive_mask(request, product_dtype(query), blank=not query.is_cpu)
        if addend is not None:
            batch = request.batch()
            is_flat = is_flat and batch == request.frame.batch
            addend = flat(addend, batch)
        if not is_flat:
            query, key, value = (flat(side, batch) for side in (query, key, value))
        reading = F.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=addend,
            dropout_p=request.dropout,
            is_causal=triangle,
            scale=scale,
        )
        if len(batch) != 2:
            reading = reading.reshape(*batch, request.queries, value.shape[-1])
        return reading if nothing is None else reading.masked_fill(nothing, 0.0)


def is_triangle(request: Request) -> bool:
    """Whether the mask is the one that torch's fused attention makes by itself, without a bias."""
    mask = request.mask
    if request.has_bias or not isinstance(mask, Band):
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
