"""torch's own fused attention, for every score that is a dot product of something."""

from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.kernels import tiled
from regard.attention.kernels.apart import fused_backward, fused_forward
from regard.attention.kernels.dots import additive_mask, dots_objection, factors, read_dots
from regard.attention.kernels.pieces import flat
from regard.attention.kernels.request import Request
from regard.attention.kernels.zeroed import finite, has_nan
from regard.attention.products import product_dtype
from regard.attention.shapes import Shape
from regard.loops.availability import in_forward_mode

SINGLE_AND_DOUBLE = (torch.float32, torch.float64)
FUSED = 1  # of torch._fused_sdp_choice
Arguments = tuple[Tensor, Tensor, Tensor, Tensor | None, float, bool]  # of torch's fused attention


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
        is_masked, triangle, addend, nothing = request.is_masked, False, None, None
        unwritten = request
        if is_masked and not (triangle := is_triangle(request)):
            is_large = not request.is_traced and request.pairs >= tiled.AREA
            if is_large and (reading := tiled.read_tiles(request, value, fused=True)) is not None:
                return reading
            request = request.written()
        # torch's own scale needs no argument, which would cost a tenth of a small call.
        query, key, scale = (
            (request.query, request.key, None) if request.is_plain else factors(request)
        )
        has_vectors = request.has_vectors(query, key)
        batch = request.frame.batch
        is_flat = request.is_regular and len(batch) == 2 and query is request.query
        if is_masked and not triangle:
            # On a CPU torch reads zeros where there is nothing to read; elsewhere it may divide by 0.
            addend, nothing = additive_mask(request, product_dtype(query), blank=not query.is_cpu)
            batch = request.batch()
            is_flat = is_flat and batch == request.frame.batch
            addend = None if addend is None else flat(addend, batch)
            if addend is not None and addend.is_cuda:
                addend = _rows(addend, request.keys)
        if not is_flat:
            query, key, value = (flat(side, batch) for side in (query, key, value))
        arguments = query, key, value, addend, request.dropout, triangle
        trains = not request.is_traced and has_gradients(arguments, scale)
        unwritten.checks_gradients = trains and has_vectors
        reading = fused(arguments, scale, trains)
        if len(batch) != 2:
            reading = reading.reshape(*batch, request.queries, value.shape[-1])
        return reading if nothing is None else reading.masked_fill(nothing, 0.0)


def _rows(addend: Tensor, keys: int) -> Tensor:
    """The numbers to add with rows that lie in memory as they are read, which the fused kernels of a GPU need."""
    if addend.shape[-1] == keys and addend.stride(-1) == 1:
        return addend
    return addend.expand(*addend.shape[:-1], keys).contiguous()


def has_gradients(arguments: Arguments, scale: float | None) -> bool:
    """Whether gradients are wanted that torch's fused kernel for processors computes."""
    query, key, value, addend, dropout, _ = arguments
    if not (query.requires_grad or key.requires_grad or value.requires_grad):
        return False
    if dropout or not (query.is_cpu and torch.is_grad_enabled()):
        return False
    if torch.is_autocast_enabled("cpu") or (addend is not None and addend.requires_grad):
        return False
    return bool(torch._fused_sdp_choice(*arguments, scale=scale) == FUSED)


def fused(arguments: Arguments, scale: float | None, trains: bool) -> Tensor:
    """torch's fused attention; where it trains, with gradients of every order."""
    if trains:
        query, key, value, addend, _, triangle = arguments
        reading: Tensor = _Trained.apply(query, key, value, addend, triangle, scale)  # type: ignore[no-untyped-call]
        return reading
    if scale is None:
        return F.scaled_dot_product_attention(*arguments)
    return F.scaled_dot_product_attention(*arguments, scale=scale)


def fused_with_sums(request: Request, value: Tensor) -> tuple[Tensor, Tensor] | None:
    """The reading and the log-normalisers of keys that may all be read, in one pass over keys and values.

    Without dropout and gradients, on a processor; None where torch's fused attention does not serve.
    """
    if not (request.is_regular and value.is_cpu) or request.query.dtype not in SINGLE_AND_DOUBLE:
        return None
    if dots_objection(request, value) is not None:
        return None
    query, key, scale = factors(request)
    width, has_graph = query.shape[-1], torch.is_grad_enabled()
    if value.shape[-1] != width or not isinstance(scale, float | int):
        return None
    if has_graph and (query.requires_grad or key.requires_grad or value.requires_grad):
        return None
    batch = request.frame.batch
    sides = (flat(side, batch) for side in (query, key, value))
    # Called directly, the kernel takes the numbers of a vector for neighbours in memory.
    query, key, value = (side if side.stride(-1) == 1 else side.contiguous() for side in sides)
    reading, sums = fused_forward(query, key, value, scale=scale)
    rows = *batch, request.queries
    return reading.reshape(*rows, width), sums.reshape(rows)


class _Trained(torch.autograd.Function):
    """torch's fused attention. Gradients of its gradients, which torch does not have, are those of two products."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        addend: Tensor | None,
        triangle: bool,
        scale: float | None,
    ) -> Tensor:
        reading, sums = fused_forward(
            query, key, value, 0.0, triangle, attn_mask=addend, scale=scale
        )
        ctx.save_for_backward(query, key, value, addend, reading, sums)
        ctx.triangle, ctx.scale = triangle, scale
        return reading

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Any:
        query, key, value, addend, reading, sums = ctx.saved_tensors
        is_masked = addend is not None or ctx.triangle
        if not torch.is_grad_enabled():
            remaining = reading, sums, 0.0, ctx.triangle
            options = {"attn_mask": addend, "scale": ctx.scale}
            gradients = fused_backward(upstream, query, key, value, *remaining, **options)
            # A hidden key or query that is NaN or infinite shows in all gradients: 0 times NaN is NaN.
            if is_masked and (has_nan(gradients[0]) or has_nan(gradients[1])):
                sides = finite(query), finite(key), value
                gradients = fused_backward(upstream, *sides, *remaining, **options)
            return (*gradients, None, None, None)
        # A tensor may be the query and the key at once: each side gets a gradient by itself.
        sides = query.view_as(query), key.view_as(key), value.view_as(value)
        scale = query.shape[-1] ** -0.5 if ctx.scale is None else ctx.scale
        query, key, value = (finite(side) for side in sides) if is_masked else sides
        blank = None
        if ctx.triangle:
            shape = query.shape[-2], key.shape[-2]
            addend = query.new_full(shape, -torch.inf).triu(1)
        elif addend is not None:
            blank = (addend == -torch.inf).all(-1, keepdim=True)
        reading = read_dots(query * scale, key, value, addend, blank)
        places = [i for i in range(3) if ctx.needs_input_grad[i]]
        gradients = torch.autograd.grad(
            reading, [sides[i] for i in places], upstream, create_graph=True
        )
        totals: list[Tensor | None] = [None] * 6
        for i, gradient in zip(places, gradients, strict=True):
            totals[i] = gradient
        return tuple(totals)


def is_triangle(request: Request) -> bool:
    """Whether the mask is the one that torch's fused attention makes by itself, without a bias."""
    layout = request.layout
    return layout is not None and layout.is_triangle and not request.has_bias


def _is_mixed(shape: Shape, batch: Shape) -> bool:
    """Whether the axes before the last broadcast only in part, so that no view can merge them."""
    if shape == batch:
        return False
    front = ((1,) * (len(batch) - len(shape)) + tuple(shape))[:-1]
    return len(front) > 1 and front != batch[:-1] and prod(front) != 1
