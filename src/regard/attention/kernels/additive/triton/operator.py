"""The kernels as one function of torch: tensors with broadcast batch axes in, gradients out."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.attention.kernels.additive.requests import Rules, batch_of, flatten, sides_of
from regard.attention.kernels.additive.triton.backward import backward
from regard.attention.kernels.additive.triton.bias import bias_gradients
from regard.attention.kernels.additive.triton.forward import forward
from regard.attention.shapes import Shape

ROWS, COLUMNS = 32, 32
NARROW, WIDE = 16, 128  # the value's width goes in stretches of a power of two between these


@dataclass(frozen=True)
class CallTensors:
    """Contiguous tensors with one batch axis each; `where` says which entry of each one is read."""

    factor: float
    cap: float  # 0 is none
    batch: Shape
    where: Tensor
    a: Tensor  # (entries, hidden, queries)
    c: Tensor  # (entries, hidden, keys)
    w: Tensor  # (entries, hidden)
    v: Tensor  # (entries, keys, width)
    spans: Tensor  # (entries, 2, queries)
    bias: Tensor  # this and the rest are empty where there is none
    mask: Tensor
    asking: Tensor
    stored: Tensor

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        return self.a.shape[2], self.c.shape[2], self.a.shape[1], self.v.shape[2]

    def inputs(self) -> list[Any]:
        """The first arguments of all kernels."""
        return [
            *(self.where, self.a, self.c, self.w, self.v, self.spans, self.asking, self.stored),
            *_plane(self.mask),
            *_plane(self.bias),
        ]

    def switches(self) -> dict[str, Any]:
        width = 1 << (self.sizes[3] - 1).bit_length()
        return {
            "DOCUMENTS": self.asking.numel() > 0,
            "MASK": self.mask.numel() > 0,
            "BIAS": self.bias.numel() > 0,
            "CAPPED": self.cap > 0,
            "ROWS": ROWS,
            "COLUMNS": COLUMNS,
            "WIDE": min(max(width, NARROW), WIDE),
        }


def _plane(plane: Tensor) -> list[Any]:
    """A mask or bias and its strides, 0 along an axis of size 1."""
    rows, columns = plane.shape[1:]
    return [plane, rows * columns, columns if rows > 1 else 0, 1 if columns > 1 else 0]


def _call_tensors(
    a: Tensor,
    c: Tensor,
    w: Tensor,
    v: Tensor,
    bias: Tensor | None,
    rules: Rules,
    factor: float,
    cap: float,
) -> CallTensors:
    plane = None if bias is None else bias.float().masked_fill(bias == -torch.inf, 0.0)
    sides = sides_of(a, c, w, v, plane, rules)
    batch = batch_of(sides)
    (a, c, w, v, spans, *rest), where = flatten(sides, batch)
    sides = (a.mT, c.mT, w, v, spans.int(), *rest)
    return CallTensors(factor, cap, batch, where, *(each.contiguous() for each in sides))


class _Additive(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, a: Tensor, c: Tensor, w: Tensor, v: Tensor, bias: Tensor | None, *rest: Any
    ) -> Tensor:
        call = _call_tensors(a, c, w, v, bias, *rest)
        queries, width = call.sizes[0], call.sizes[3]
        entries, switches = len(call.where), call.switches()
        reading = a.new_empty(entries, queries, width)
        norms = a.new_empty(entries, 2, queries)
        grid = (-(-queries // ROWS), entries, -(-width // switches["WIDE"]))
        sizes = (*call.sizes, call.factor, call.cap)
        forward[grid](*call.inputs(), reading, norms, *sizes, **switches)
        rules, ctx.factor, ctx.cap = rest
        ctx.save_for_backward(*rules, a, c, w, v, bias, reading, norms)
        return reading.reshape(*call.batch, queries, width).to(v.dtype)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        rules, saved = (
            ctx.saved_tensors[: len(Rules._fields)],
            ctx.saved_tensors[len(Rules._fields) :],
        )
        rest = (Rules(*rules), ctx.factor, ctx.cap)
        needs = (rest, ctx.needs_input_grad[4], *upstream)
        gradients = _AdditiveGradients.apply(*needs, *saved)  # type: ignore[no-untyped-call]
        return *gradients, *(None,) * len(rest)


class _AdditiveGradients(torch.autograd.Function):
    """The gradients, as a function that raises when it is differentiated itself."""

    @staticmethod
    def forward(ctx: Any, rest: Any, wants_bias: bool, upstream: Tensor, *saved: Any) -> Any:
        a, c, w, v, bias, reading, norms = saved
        call = _call_tensors(a, c, w, v, bias, *rest)
        queries, keys, hidden, width = call.sizes
        entries, switches = len(call.where), call.switches()
        upstream = upstream.reshape(entries, queries, width).float().contiguous()
        means = (upstream * reading).sum(-1)
        blocks = -(-queries // ROWS)
        for_a, for_c = a.new_zeros(entries, hidden, queries), a.new_zeros(entries, hidden, keys)
        for_w, for_v = a.new_zeros(entries, blocks, hidden), a.new_empty(entries, keys, width)
        given = [*call.inputs(), norms, upstream, means]
        sizes = [*call.sizes, call.factor, call.cap]
        arguments = [*given, for_a, for_w, for_c, for_v, *sizes]
        backward[(blocks, entries, 1)](*arguments, **switches, BY_KEYS=False)
        grid = (-(-keys // COLUMNS), entries, -(-width // switches["WIDE"]))
        backward[grid](*arguments, **switches, BY_KEYS=True)
        gradients = (for_a.mT, for_c.mT, for_w.sum(1), for_v)
        summed = [
            gradient.reshape(*call.batch, *gradient.shape[1:])
            .sum_to_size(like.shape)
            .to(like.dtype)
            for gradient, like in zip(gradients, (a, c, w, v), strict=True)
        ]
        for_bias = None
        if wants_bias:
            flat = _bias_gradients(call, given, sizes)
            for_bias = flat.reshape(bias.shape).to(bias.dtype)
        return *summed, for_bias

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        raise NotImplementedError(
            "kernel 'triton' has no gradients of gradients: pin regard.kernel('blocked')"
        )


def _bias_gradients(call: CallTensors, given: list[Any], sizes: list[Any]) -> Tensor:
    """The gradient of the flat bias, each of its entries from all batch entries that share it."""
    bias, shared = call.bias, call.where[:, 5]
    counts = torch.bincount(shared, minlength=len(bias))
    starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    order, gradients = shared.argsort(stable=True), torch.zeros_like(bias)
    one_row, one_column = bias.shape[1] == 1, bias.shape[2] == 1
    rows, columns = -(-bias.shape[1] // ROWS), -(-bias.shape[2] // COLUMNS)
    bias_gradients[(rows, columns, len(bias))](
        *given, order, starts, gradients, *sizes,
        **call.switches(), ONE_ROW=one_row, ONE_COLUMN=one_column,
    )  # fmt: skip
    return gradients


def additive(
    a: Tensor,
    c: Tensor,
    w: Tensor,
    v: Tensor,
    bias: Tensor | None,
    rules: Rules,
    factor: float,
    cap: float = 0.0,
) -> Tensor:
    """softmax((cap(w . tanh(a + c)) + bias) factor, masked) v.

    a: (queries, hidden); c: (keys, hidden); w: (hidden), all float32; v: (keys, d_value). Any may
    have batch axes in front, which broadcast. A bias of -inf is a mask. cap 0 is none.
    """
    if bias is not None:
        finite = bias != -torch.inf
        rules = rules._replace(mask=finite if rules.mask is None else rules.mask & finite)
    reading: Tensor = _Additive.apply(a, c, w, v, bias, rules, factor, cap)  # type: ignore[no-untyped-call]
    return reading
