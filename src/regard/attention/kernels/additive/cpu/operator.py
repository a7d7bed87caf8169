"""Additive attention as one operator of torch, with its gradient.

    reading = softmax((cap(w . tanh(a + c)) + bias) / T, masked) v

Every tensor may have batch axes in front, which broadcast. numba is loaded on the first call.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from regard.attention.kernels.additive.requests import Rules, batch_of, sides_of


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

    rules = Rules(low, high, asking, stored, mask)
    return forward(sides_of(a, c, w, v, bias, rules), cap, temperature)


@additive.register_fake
def _(a, c, w, v, bias, *rest):  # type: ignore[no-untyped-def]
    rows = (*batch_of(sides_of(a, c, w, v, bias, Rules(*rest[:5]))), a.shape[-2])
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

    sides = sides_of(a, c, w, v, bias, Rules(low, high, asking, stored, mask))
    gradients = backward(sides, cap, temperature, (out, peaks, totals, upstream), wants_bias)
    shapes = [
        *(t.shape for t in (a, c, w, v)),
        bias.shape if wants_bias and bias is not None else 0,
    ]
    for_a, for_c, for_w, for_v, for_bias = (
        torch.from_numpy(gradient).reshape(shape)
        for gradient, shape in zip(gradients, shapes, strict=True)
    )
    return for_a, for_c, for_w, for_v, for_bias


@additive_backward.register_fake
def _(upstream, out, peaks, totals, a, c, w, v, bias, *rest):  # type: ignore[no-untyped-def]
    gradients = [torch.empty_like(t, memory_format=torch.contiguous_format) for t in (a, c, w, v)]
    return *gradients, a.new_empty(0 if bias is None or not rest[-1] else bias.shape)


def _remember(ctx, inputs, output):  # type: ignore[no-untyped-def]
    *tensors, ctx.cap, ctx.temperature = inputs
    ctx.save_for_backward(*output, *tensors)
    ctx.mark_non_differentiable(*output[1:])


def _gradients(ctx, upstream, *_):  # type: ignore[no-untyped-def]
    saved, wants = ctx.saved_tensors, ctx.needs_input_grad
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


def _mapped(operator: Callable[..., Any]) -> Callable[..., Any]:
    """vmap as a loop over the mapped axis: each call uses all threads."""

    def run(info: Any, dims: Any, *inputs: Any) -> Any:
        given = list(zip(inputs, dims, strict=True))
        results = [
            operator(*(each if dim is None else each.select(dim, k) for each, dim in given))
            for k in range(info.batch_size)
        ]
        stacked = tuple(torch.stack(parts) for parts in zip(*results, strict=True))
        return stacked, (0,) * len(stacked)

    return run


additive.register_vmap(_mapped(additive))
additive_backward.register_vmap(_mapped(additive_backward))
