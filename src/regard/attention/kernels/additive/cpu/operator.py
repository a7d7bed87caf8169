"""Additive attention as one operator of torch, with its gradient.

    reading = softmax((cap(w . tanh(a + c)) + bias) / T, masked) v

Every tensor may have batch axes in front, which broadcast. numba is loaded on the first call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from regard.attention.kernels.additive.cpu.call_arrays import state
from regard.attention.kernels.rules import Rules, batch_of


@torch.library.custom_op("regard::additive", mutates_args=())
def additive(
    a: Tensor,
    c: Tensor,
    w: Tensor,
    v: Tensor,
    bias: Tensor | None,
    low: Tensor | None,
    high: Tensor | None,
    asking: Tensor | None,
    stored: Tensor | None,
    mask: Tensor | None,
    cap: float,
    temperature: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """The reading (*batch, queries, d_value), and the peak and total of each row's softmax.

    a: (queries, hidden); c: (keys, hidden); w: (hidden); v: (keys, d_value); bias and mask planes
    whose axes may be 1; low and high: (queries), the span of keys each may read; asking: (queries)
    and stored: (keys), documents. cap 0 is none.
    """
    from regard.attention.kernels.additive.cpu.calls import forward

    call = state(a, c, w, v, bias, Rules(low, high, asking, stored, mask))
    return forward(call, cap, 1.0 / temperature)


@additive.register_fake
def _(a, c, w, v, bias, low, high, asking, stored, mask, cap, temperature):  # type: ignore[no-untyped-def]
    batch = batch_of(a, c, w, v, bias, Rules(low, high, asking, stored, mask))
    rows = (*batch, a.shape[-2])
    return a.new_empty(*rows, v.shape[-1]), a.new_empty(rows), a.new_empty(rows)


@torch.library.custom_op("regard::additive_backward", mutates_args=())
def additive_backward(
    upstream: Tensor,
    out: Tensor,
    peaks: Tensor,
    totals: Tensor,
    a: Tensor,
    c: Tensor,
    w: Tensor,
    v: Tensor,
    bias: Tensor | None,
    low: Tensor | None,
    high: Tensor | None,
    asking: Tensor | None,
    stored: Tensor | None,
    mask: Tensor | None,
    cap: float,
    temperature: float,
    wants_bias: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The gradients of a, c, w, v and bias, in their own shapes; the last empty if not wanted."""
    from regard.attention.kernels.additive.cpu.calls import backward

    call = state(a, c, w, v, bias, Rules(low, high, asking, stored, mask))
    gradients = backward(call, cap, 1.0 / temperature, out, peaks, totals, upstream, wants_bias)
    shapes = [tensor.shape for tensor in (a, c, w, v)]
    shapes.append(bias.shape if wants_bias and bias is not None else torch.Size([0]))
    for_a, for_c, for_w, for_v, for_bias = (
        torch.from_numpy(gradient).reshape(shape)
        for gradient, shape in zip(gradients, shapes, strict=True)
    )
    return for_a, for_c, for_w, for_v, for_bias


@additive_backward.register_fake
def _(  # type: ignore[no-untyped-def]
    upstream,
    out,
    peaks,
    totals,
    a,
    c,
    w,
    v,
    bias,
    low,
    high,
    asking,
    stored,
    mask,
    cap,
    temperature,
    wants_bias,
):
    gradients = [torch.empty_like(t, memory_format=torch.contiguous_format) for t in (a, c, w, v)]
    wanted = wants_bias and bias is not None
    return *gradients, a.new_empty(bias.shape if wanted else 0)


def _remember(ctx, inputs, output):  # type: ignore[no-untyped-def]
    *tensors, ctx.cap, ctx.temperature = inputs
    ctx.save_for_backward(*output, *tensors)
    ctx.mark_non_differentiable(*output[1:])


def _gradients(ctx, upstream, *_):  # type: ignore[no-untyped-def]
    (*saved,) = ctx.saved_tensors
    wants = ctx.needs_input_grad
    gradients = additive_backward(upstream, *saved, ctx.cap, ctx.temperature, wants[4])
    inputs = [
        gradient if want else None for gradient, want in zip(gradients, wants[:5], strict=True)
    ]
    return *inputs, *[None] * 7


def _refuse(ctx, *upstream):  # type: ignore[no-untyped-def]
    raise NotImplementedError(
        "kernel 'cpu' has no gradients of gradients: pin regard.kernel('blocked')"
    )


additive_backward.register_autograd(_refuse)
additive.register_autograd(_gradients, setup_context=_remember)


# Axes of their own that the tensors have, after those of the batch.
OWN = (2, 2, 1, 2, 2, 1, 1, 1, 1, 2)
OWN_BACKWARD = (2, 2, 1, 1, *OWN)


def _rank(tensors: Sequence[Any], own: Sequence[int], dims: Sequence[int | None]) -> int:
    """The batch axes of all, without the mapped one."""
    inputs = zip(tensors, own, dims, strict=True)
    return max(int(t.ndim) - axes - (dim is not None) for t, axes, dim in inputs if t is not None)


def _lead(tensor: Any, own: int, dim: int | None, rank: int, size: int | None) -> Any:
    """The tensor with the mapped axis in front of `rank` others; expanded to a size if one is passed."""
    if tensor is None or (dim is None and size is None):
        return tensor
    front = tensor.unsqueeze(0) if dim is None else tensor.movedim(dim, 0)
    missing = rank - (front.ndim - 1 - own)
    front = front.reshape(front.shape[0], *(1,) * missing, *front.shape[1:])
    return front if size is None else front.expand(size, *front.shape[1:])


def _map(info, dims, *inputs):  # type: ignore[no-untyped-def]
    tensors, count = inputs[: len(OWN)], len(OWN)
    rank = _rank(tensors, OWN, dims[:count])
    led = [
        _lead(t, own, dim, rank, None)
        for t, own, dim in zip(tensors, OWN, dims[:count], strict=True)
    ]
    return additive(*led, *inputs[count:]), (0, 0, 0)


def _map_backward(info, dims, *inputs):  # type: ignore[no-untyped-def]
    count, size = len(OWN_BACKWARD), info.batch_size
    tensors = inputs[:count]
    rank = _rank(tensors, OWN_BACKWARD, dims[:count])
    led = [
        _lead(t, own, dim, rank, size)
        for t, own, dim in zip(tensors, OWN_BACKWARD, dims[:count], strict=True)
    ]
    gradients = additive_backward(*led, *inputs[count:])
    shaped = []
    for gradient, tensor, dim in zip(gradients, tensors[4:9], dims[4:9], strict=True):
        if tensor is None or gradient.numel() == 0:
            shaped.append(gradient.new_zeros(size, 0))
            continue
        shape = tensor.shape if dim is None else tensor.movedim(dim, 0).shape[1:]
        shaped.append(gradient.reshape(size, *shape))
    return tuple(shaped), (0,) * 5


additive.register_vmap(_map)
additive_backward.register_vmap(_map_backward)
