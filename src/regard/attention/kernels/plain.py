"""Plain calls: softmax(q k / sqrt d) v on a processor, without gradients, dropout or a bias, and single queries of keys
that an additive score was prepared for.

Torch's fused attention serves the former. What it is told of a mask is worked out once, and kept by the mask; the rest
is settled by the shapes. All other calls become a request, for which a kernel is chosen.
"""

from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.kernels.choose import pinned
from regard.attention.kernels.dots import added
from regard.attention.kernels.request import rule_of, sides_of
from regard.attention.kernels.tiled import AREA, area
from regard.attention.kernels.zeroed import has_nan
from regard.attention.masks import MaskLike
from regard.attention.masks.layout import Layout, kept_layout, lay
from regard.attention.masks.tiles import independent_tiles
from regard.attention.scores.parametric import PreparedAdditive
from regard.attention.shapes import Frame
from regard.loops.availability import followed

SAVED = 1 << 15  # pairs for which a call of torch's fused attention is worth it
Run = tuple[int, int]  # the first position, and how many there are


class Fusible(NamedTuple):
    """A mask as torch's fused attention takes it: a run of keys for all queries, numbers to add, or several calls."""

    run: Run | None = None  # of keys; None for all
    addend: Tensor | None = None
    calls: list[tuple[int, Run, bool]] | None = (
        None  # queries, keys, and whether they are a triangle
    )


def read_plain(
    query: Tensor, key: Tensor, value: Tensor, mask: MaskLike | None = None
) -> Tensor | None:
    """The reading; None where it takes a request: where tensors must be refused, or served in another way."""
    if not (type(query) is type(key) is type(value) is Tensor) or followed():
        return None
    if torch.is_grad_enabled() and (
        query.requires_grad or key.requires_grad or value.requires_grad
    ):
        return None
    shape = query.shape
    sides = sides_of(shape, key.shape, value.shape, query.dtype, query.device)
    if not sides.is_fusible or pinned(is_traced=False):
        return None
    is_triangle, addend, calls = False, None, None
    if mask is not None:
        laid = _laid(mask, sides.frame)
        if laid is None:
            return None
        layout = laid[0]
        is_triangle = layout.is_triangle
        if not is_triangle:
            dtype, is_even = query.dtype, value.shape[-1] == shape[-1]
            question = "fusible", dtype, is_even
            fusible = layout.once(question, lambda: _fusible(layout, dtype, is_even))
            if fusible is None:
                return None
            run, addend, calls = fusible
            if run is not None:
                key, value = key.narrow(-2, *run), value.narrow(-2, *run)
    has_heads = len(shape) == 4
    if not has_heads:  # torch is four times as slow on three axes
        query, key, value = query.unsqueeze(0), key.unsqueeze(0), value.unsqueeze(0)
    try:
        if calls is None:
            reading = F.scaled_dot_product_attention(query, key, value, addend, 0.0, is_triangle)
        else:
            reading = _read_apart(query, key, value, calls)
    except RuntimeError:  # several precisions or devices: the checks of a request say which
        return None
    if (is_triangle or addend is not None or calls is not None) and has_nan(reading):
        return None  # it may be that of a key that no query reads
    return reading if has_heads else reading.squeeze(0)


def _read_apart(
    query: Tensor, key: Tensor, value: Tensor, calls: list[tuple[int, Run, bool]]
) -> Tensor:
    """The reading of queries that follow one another, each run of them by a call over its own keys."""
    queries = query.split([rows for rows, _, _ in calls], -2)
    return torch.cat(
        [
            F.scaled_dot_product_attention(
                rows, key.narrow(-2, *run), value.narrow(-2, *run), None, 0.0, is_triangle
            )
            for rows, (_, run, is_triangle) in zip(queries, calls, strict=True)
        ],
        -2,
    )


def read_prepared(
    query: Tensor, key: Tensor, value: Tensor, score: PreparedAdditive, mask: MaskLike | None = None
) -> Tensor | None:
    """The reading of one query of each batch entry, by the keys that the score was prepared for; None as above."""
    powers = score.kept
    parameters: dict[str, Any] = score.score._parameters
    if powers is None or not powers.serves(key) or pinned(is_traced=False):
        return None
    if type(query) is not Tensor or type(value) is not Tensor:
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


def _fusible(layout: Layout, dtype: torch.dtype, is_even: bool) -> Fusible | None:
    """The mask for torch; None where tiles are quicker, or where it has batch axes that the queries do not have.

    Only values of one width with the keys are read by several calls: torch writes out the scores of others.
    """
    batch, queries, keys, _ = layout.frame
    if (columns := layout.common_keys) is not None:
        return Fusible(run=None if len(columns) == keys else _run(columns))
    if layout.batch != batch:
        return None
    size, plane = prod(batch), queries * keys
    is_large = size * plane >= AREA
    if is_even and size * plane >= SAVED:
        tiles = independent_tiles(layout.mask, layout.frame)
        if tiles and (is_large or size * (plane - area([tiles])) >= SAVED * len(tiles)):
            runs = ((len(tile.rows), _run(tile.columns), tile.triangle) for tile in tiles)
            return Fusible(calls=list(runs))
    if is_large:
        return None
    addend = added(layout, dtype)
    return Fusible(addend=addend.unsqueeze(0) if addend.ndim == 3 else addend)


def _run(positions: range) -> Run:
    return positions.start, len(positions)
