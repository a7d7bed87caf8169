"""Which requests the kernels for dot products can serve, and their arguments."""

from collections.abc import Callable

import torch
from torch import Tensor

from regard.attention.kernels.request import Request, name_of
from regard.attention.masks.layout import Layout
from regard.attention.normalisers import Softmax
from regard.attention.products import blend, divided, dots
from regard.attention.scores import DotLike
from regard.attention.scores.score import is_dots
from regard.loops.availability import transformed

Addends = tuple[Tensor | None, Tensor | None]


def dots_objection(request: Request, value: Tensor) -> str | None:
    """Why this is no softmax over dot products of something; None when it is."""
    if request.is_plain:
        return None
    if not is_dots(request.score):
        if not isinstance(request.score, DotLike):
            return f"{name_of(request.score)} is not a dot product"
        return (
            f"{name_of(request.score)} has methods or hooks of its own: only a call of it is exact"
        )
    if type(request.normaliser) is not Softmax:
        return f"{name_of(request.normaliser)} is not a softmax"
    if request.is_regular or (request.query.numel() and request.key.numel() and value.numel()):
        return None
    return "an axis has size 0"


def factors(request: Request) -> tuple[Tensor, Tensor, float]:
    """The vectors and the positive scale whose dot products are the scores over the temperature.

    Fused kernels scale masked scores of -inf as well: a scale below 0 would make those +inf. With a
    scale of 0, products in half precision leave their result as it was in memory.
    """
    query, key, scale = request.score.factors(request.query, request.key)  # type: ignore[attr-defined]
    if not scale > 0:
        query, scale = (-query, -scale) if scale else (query * 0.0, 1.0)
    return query, key, scale / request.normaliser.temperature  # type: ignore[attr-defined]


def read_dots(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    addend: Tensor | None,
    blank: Tensor | None,
    dropped: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """softmax(query key + addend) value, by operations with gradients of every order.

    The `blank` rows have nothing to read, and read zeros. `dropped` is what dropout makes of the weights.
    """
    scores = dots(query, key)
    if addend is not None:
        # A row of -inf alone would be NaN, and so would its gradient.
        scores = scores + (addend if blank is None else addend.masked_fill(blank, 0.0))
    weights = torch.softmax(scores, dim=-1)
    if dropped is not None:
        weights = dropped(weights)
    reading = blend(weights.to(value.dtype), value)
    return reading if blank is None else reading.masked_fill(blank, 0.0)


def additive_mask(request: Request, dtype: torch.dtype, blank: bool = True) -> Addends:
    """Mask and bias as numbers to add to the scores, and which rows have nothing to read, if `blank` and any have.

    Where a key may not be read the number is -inf. Those rows are left open, so that nothing is
    divided by zero on their account.
    """
    if request.layout is None or request.has_bias:
        return _additive_mask(request, dtype, blank)
    addends: Addends = request.layout.once(
        (dtype, blank), lambda: _additive_mask(request, dtype, blank)
    )
    return addends


def _additive_mask(request: Request, dtype: torch.dtype, blank: bool) -> Addends:
    readable = request.readable()
    if readable is None:
        return None, None
    nothing = _blank_rows(readable) if blank else None
    open_ = readable if nothing is None else readable | nothing
    if request.bias is None:
        return _numbers(open_, dtype), nothing
    bias = divided(request.bias, dtype, request.normaliser.temperature)  # type: ignore[attr-defined]
    return torch.where(open_, torch.where(readable, bias, 0.0), -torch.inf), nothing


def added(layout: Layout, dtype: torch.dtype) -> Tensor:
    """A mask as numbers to add to the scores, -inf in all of a row with nothing to read."""
    addends: Addends = layout.once((dtype, False), lambda: (_numbers(layout.dense(), dtype), None))
    assert addends[0] is not None
    return addends[0]


def _numbers(readable: Tensor, dtype: torch.dtype) -> Tensor:
    zeros = torch.zeros(readable.shape, dtype=dtype, device=readable.device)
    return zeros.masked_fill(~readable, -torch.inf)


def _blank_rows(readable: Tensor) -> Tensor | None:
    """Rows with nothing to read; None where a CPU can tell at once that there are none."""
    readable_rows = readable.any(dim=-1, keepdim=True)
    if readable_rows.is_cpu and not transformed() and bool(readable_rows.all()):
        return None
    return ~readable_rows
