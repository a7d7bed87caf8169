"""Plain calls, which need no request: a softmax over scores on a processor, without a bias or dropout.

The scores are dot products, under a mask or with gradients of few scores. Torch's fused attention reads them, at once
where it takes the tensors and the mask as they are; on three axes, where it is slow, two products read what is small.
Or there is one query of each batch entry, against keys that an additive score was prepared for. What is needed of a
mask is worked out once, and kept by the mask; the rest is settled by the shapes. All other calls become a request, for
which a kernel is chosen.
"""

from math import prod
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.kernels.apart import Calls
from regard.attention.kernels.choose import FEW, pinned
from regard.attention.kernels.dots import added
from regard.attention.kernels.request import Sides, rule_of, sides_of
from regard.attention.kernels.sdpa import fused, has_gradients
from regard.attention.kernels.tiled import AREA, area
from regard.attention.kernels.zeroed import has_nan
from regard.attention.masks import MaskLike
from regard.attention.masks.layout import Layout, kept_layout, lay
from regard.attention.masks.positions import Band
from regard.attention.masks.tiles import independent_tiles
from regard.attention.scores import DotLike, ScoreLike, as_score
from regard.attention.scores.parametric import PreparedAdditive
from regard.attention.scores.score import is_dots
from regard.attention.shapes import Frame
from regard.loops.availability import followed

# The classes of scores that a plain call may have; a name may also stand for another score.
PLAIN_SCORES = frozenset((str, DotLike, PreparedAdditive))
# Empty addends, in the precisions in which products are faster than fused attention.
NOTHING = {
    dtype: torch.empty((), dtype=dtype, device="cpu") for dtype in (torch.float32, torch.float64)
}
SAVED = 1 << 15  # pairs for which a call of torch's fused attention is worth it
Run = tuple[int, int]  # the first position, and how many there are


class MaskForm(NamedTuple):
    """A mask for products: a triangle, a run of keys for all queries, numbers to add, or several calls."""

    is_triangle: bool = False
    run: Run | None = None  # of keys; None for all
    addend: Tensor | None = None
    calls: Calls | None = None
    hides_keys: bool = True  # whether products read keys that a query does not


def read_plain(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score: ScoreLike | None = None,
    mask: MaskLike | None = None,
) -> Tensor | None:
    """The reading; None where it takes a request: where tensors must be refused, or served in another way."""
    is_prepared = type(score) is PreparedAdditive
    if not (score is None or is_prepared or isinstance(score, str) or is_dots(score)):
        return None
    if not (type(query) is type(key) is type(value) is Tensor) or followed():
        return None
    if not query.is_cpu:
        return None
    if is_prepared:
        return _read_prepared(query, key, value, cast(PreparedAdditive, score), mask)
    sides = sides_of(query.shape, key.shape, value.shape, PROCESSOR)
    if not sides.is_fusible:
        return None
    trains = torch.is_grad_enabled() and (
        query.requires_grad or key.requires_grad or value.requires_grad
    )
    # NaN in masked keys must not reach the gradients.
    if (trains and mask is not None) or pinned(is_traced=False):
        return None
    is_triangle = mask is not None and _is_triangle(mask, sides.frame)
    if score is not None or not sides.has_heads or trains or not (mask is None or is_triangle):
        return _read_by_form(query, key, value, score, mask, sides, trains, is_triangle)
    try:
        if mask is None:  # each argument takes time
            return F.scaled_dot_product_attention(query, key, value)
        reading = F.scaled_dot_product_attention(query, key, value, None, 0.0, True)
    except RuntimeError:  # shapes, precisions or devices that a request refuses
        return None
    return None if has_nan(reading) else reading


def _read_by_form(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score: ScoreLike | None,
    mask: MaskLike | None,
    sides: Sides,
    trains: bool,
    is_triangle: bool,
) -> Tensor | None:
    """The reading by the vectors of the score and the form of the mask; None as above."""
    is_recorded = trains or (score is not None and torch.is_grad_enabled())  # its parameters
    is_small = (trains or not sides.has_heads) and _is_small(query, key, value, sides)
    if (is_recorded and mask is not None) or (trains and not is_small):
        return None
    by_products = is_small and not trains
    scale, form = None, EVERYTHING
    if score is not None:
        factors = _factors(score, query, key)
        if factors is None:
            return None
        query, key, scale = factors
    if is_triangle and not by_products:
        form = TRIANGLE
    elif mask is not None:
        is_even = not by_products and value.shape[-1] == query.shape[-1]
        mask_form = _form(mask, sides.frame, query.dtype, is_even)
        if mask_form is None:
            return None
        form = mask_form
        if form.run is not None:
            key, value = key.narrow(-2, *form.run), value.narrow(-2, *form.run)
    try:
        if by_products:
            reading = _by_products(query, key, value, scale, form.addend)
        else:
            reading = _by_fused(query, key, value, scale, form, is_recorded)
    except (RuntimeError, KeyError):  # shapes, precisions or devices that a request refuses, or
        return None  # factors in a precision that only the operations of a request serve
    if form.hides_keys and has_nan(reading):
        return None  # it may be that of a key that no query reads
    return reading


def _is_triangle(mask: MaskLike, frame: Frame) -> bool:
    """Whether torch's fused attention makes the mask by itself."""
    if isinstance(mask, str):
        return mask == "causal" and frame.queries == frame.keys
    return type(mask) is Band and mask.is_triangle(frame.queries, frame.keys)


def _is_small(query: Tensor, key: Tensor, value: Tensor, sides: Sides) -> bool:
    """Whether operations take longer to call than to compute, in the precision of the tensors."""
    is_few = sides.pairs < FEW and query.dtype in NOTHING and key.is_cpu and value.is_cpu
    # Autocast computes products of float32 in half precision.
    return is_few and not (torch.is_autocast_enabled("cpu") and query.dtype == torch.float32)


def _by_products(
    query: Tensor, key: Tensor, value: Tensor, scale: float | None, addend: Tensor | None
) -> Tensor:
    """softmax(scale Q K^T + addend) V."""
    if scale is None:
        scale = query.shape[-1] ** -0.5
    if addend is None and scale == 1:
        scores = torch.bmm(query, key.mT)
    else:
        start, beta = (NOTHING[query.dtype], 0) if addend is None else (addend, 1)
        scores = torch.baddbmm(start, query, key.mT, beta=beta, alpha=scale)
    return torch.bmm(torch.softmax(scores, -1), value)


def _by_fused(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float | None,
    form: MaskForm,
    is_recorded: bool,
) -> Tensor:
    """The same by torch's fused attention, which is four times as slow on three axes as on four."""
    is_triangle, _, addend, calls, _ = form
    has_heads = query.ndim == 4
    if not has_heads:
        query, key, value = query.unsqueeze(0), key.unsqueeze(0), value.unsqueeze(0)
        addend = addend.unsqueeze(0) if addend is not None and addend.ndim == 3 else addend
    if calls is not None:
        reading = _read_apart(query, key, value, calls, scale)
    elif is_recorded:
        arguments = query, key, value, addend, 0.0, is_triangle
        reading = fused(arguments, scale, has_gradients(arguments, scale))
    elif scale is None and addend is None and not is_triangle:
        reading = F.scaled_dot_product_attention(query, key, value)  # each argument takes time
    elif scale is None:
        reading = F.scaled_dot_product_attention(query, key, value, addend, 0.0, is_triangle)
    else:
        reading = F.scaled_dot_product_attention(
            query, key, value, addend, 0.0, is_triangle, scale=scale
        )
    return reading if has_heads else reading.squeeze(0)


def _read_apart(
    query: Tensor, key: Tensor, value: Tensor, calls: Calls, scale: float | None
) -> Tensor:
    """The reading of queries that follow one another, each run of them by a call over its own keys."""
    return torch.cat(
        [
            F.scaled_dot_product_attention(rows, keys, values, is_causal=triangle, scale=scale)
            for rows, keys, values, triangle in calls.cut(query, key, value)
        ],
        -2,
    )


def _factors(score: ScoreLike, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, float] | None:
    """The vectors whose dot products are the scores, and their scale; None where it takes a request.

    A score that is no name was asked for its dot products before.
    """
    if isinstance(score, str):
        score = as_score(score, query.shape[-1], key.shape[-1])
        if not is_dots(score):
            return None
    try:
        factors = cast(DotLike, score).factors(query, key)
    except RuntimeError:  # heads of the score that are not those of the query: a request says so
        return None
    scale = factors[2]  # perhaps a tensor that is learnt
    return factors if isinstance(scale, (float, int)) and scale > 0 else None


def _read_prepared(
    query: Tensor, key: Tensor, value: Tensor, score: PreparedAdditive, mask: MaskLike | None
) -> Tensor | None:
    """The reading of one query of each batch entry, by the keys that the score was prepared for; None as above."""
    powers = score.kept
    parameters: dict[str, Any] = score.score._parameters
    if powers is None or not powers.serves(key) or pinned(is_traced=False) or not value.is_cpu:
        return None
    if query.shape[:-1] != (*powers.frame.batch, powers.frame.queries):
        return None  # the mask is for these
    addend = None
    if mask is not None:
        laid = _laid(mask, powers.frame)
        if laid is None:
            return None
        addend = added(laid[0], query.dtype)
    try:
        features = F.linear(query, parameters["query_weight"], score.score.bias)
        scores = powers.relative_scores(features, parameters["weight"])
        if scores is None:
            return None
        weights = torch.softmax(scores if addend is None else scores + addend, -1)
        reading = torch.bmm(weights, value)
    except (RuntimeError, KeyError):  # shapes, precisions or devices that a request refuses, or
        return None  # parameters that are computed, so that the score must be called
    return None if addend is not None and has_nan(reading) else reading


def _laid(mask: MaskLike, frame: Frame) -> tuple[Layout, object] | None:
    """How a mask lies over the scores, beside the mask, which a layout does not hold; None of a tensor of booleans."""
    layout = kept_layout(mask, frame)
    if layout is not None:
        return layout, mask
    rule = rule_of(mask, frame)
    return None if isinstance(rule, Tensor) else (lay(rule, frame, False), rule)


def _form(mask: MaskLike, frame: Frame, dtype: torch.dtype, is_even: bool) -> MaskForm | None:
    """The mask for products, or for torch's fused attention; None as below."""
    laid = _laid(mask, frame)
    if laid is None:
        return None
    layout = laid[0]
    question = "form for products", dtype, is_even
    form: MaskForm | None = layout.once(question, lambda: _new_form(layout, dtype, is_even))
    return form


def _new_form(layout: Layout, dtype: torch.dtype, is_even: bool) -> MaskForm | None:
    """None where tiles are quicker, or where the mask has batch axes that the queries do not have.

    Only values of one width with the keys are read by several calls: torch writes out the scores of others.
    """
    batch, queries, keys, _ = layout.frame
    if (columns := layout.common_keys) is not None:
        run = None if len(columns) == keys else (columns.start, len(columns))
        return MaskForm(run=run, hides_keys=False)
    if layout.batch != batch or not dtype.is_floating_point:  # a request refuses whole numbers
        return None
    size, plane = prod(batch), queries * keys
    is_large = size * plane >= AREA
    if is_even and size * plane >= SAVED:
        tiles = independent_tiles(layout.mask, layout.frame)
        if tiles and (is_large or size * (plane - area([tiles])) >= SAVED * len(tiles)):
            return MaskForm(calls=Calls.of(tiles, keys))
    return None if is_large else MaskForm(addend=added(layout, dtype))


PROCESSOR = torch.device("cpu")
EVERYTHING, TRIANGLE = MaskForm(hides_keys=False), MaskForm(is_triangle=True)
