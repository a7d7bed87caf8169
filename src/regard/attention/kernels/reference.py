"""The equations as they stand, for any combination of parts; the other kernels must agree with them.

weights = normalise(mask(score(query, key) + bias)); reading = weights x value.
Half precisions are computed in float32.
"""

from torch import Tensor

from regard.attention.dropout import drop
from regard.attention.kernels.request import Request
from regard.attention.kernels.ties import level
from regard.attention.normalisers import Hard
from regard.attention.products import blend, fitted, widen
from regard.attention.shapes import ShapeError


def weigh(request: Request, rows: Tensor | None = None) -> Tensor:
    """The weights of all queries, or of those at these rows, over every key."""
    scores, readable, bias = scores_of(request, rows)
    if type(request.normaliser) is Hard:
        scores = level(request, scores, readable, bias, rows)
    return request.normaliser(scores, readable)


def scores_of(
    request: Request, rows: Tensor | None = None
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The scores with their bias of all queries, or of those at these rows; which may be read; the bias."""
    query, key = widen(request.query), widen(request.key)
    if rows is not None:
        query = query.index_select(-2, rows)
    scores = widen(request.score(query, key))
    lengths = query.shape[-2], request.frame.keys
    if scores.shape[-2:] != lengths:
        raise ShapeError(
            f"the score gave shape {list(scores.shape)}: it must give"
            f" [..., {lengths[0]}, {lengths[1]}], for as many queries as it is passed"
        )
    bias = request.bias_of(rows)
    if bias is not None:
        scores = scores + fitted(bias, scores.dtype).to(scores.dtype)
    return scores, request.readable(rows, bias=bias), bias


def read(request: Request, weights: Tensor, value: Tensor) -> Tensor:
    """The values, blended by the weights that are not dropped."""
    if request.dropout:
        weights = drop(weights, request.dropout)
    wide = widen(value)
    return blend(weights.to(wide.dtype), wide).to(value.dtype)


class Reference:
    name = "reference"

    def objection(self, request: Request, value: Tensor) -> str | None:
        return None

    def attend(self, request: Request, value: Tensor) -> Tensor:
        return read(request, weigh(request), value)
