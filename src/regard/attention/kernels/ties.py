"""The first of equal keys, whose scores differ by rounding alone."""

import torch
from torch import Tensor

from regard.attention.kernels.request import Request
from regard.attention.products import product_dtype, widen
from regard.attention.scores.score import pairwise
from regard.loops.availability import has_numbers

ROOM = 1 << 22  # numbers of keys compared at a time


def level(
    request: Request,
    scores: Tensor,
    readable: Tensor | None,
    bias: Tensor | None,
    rows: Tensor | None = None,
) -> Tensor:
    """The scores for a hard choice: keys that equal the best one of a row have its score.

    A product sums in another order at the end of a matrix than inside, so that equal keys get scores
    that differ in the last bits. On a GPU, and where numbers are hidden, the scores stay as they are.
    """
    if pairwise(request.score) is None:
        return scores
    query = request.query if rows is None else request.query.index_select(-2, rows)
    return level_best(scores, query, request.key, readable, bias)


def level_best(
    scores: Tensor,
    query: Tensor,
    key: Tensor,
    readable: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """The scores, the best one of a row also at the keys before it that are equal and differ by rounding."""
    if not scores.numel() or not has_numbers(scores):
        return scores
    with torch.no_grad():
        open_ = scores if readable is None else torch.where(readable, scores, -torch.inf)
        best, at = open_.max(-1, keepdim=True)
        keys = key.expand(*open_.shape[:-2], *key.shape[-2:])
        winner = keys.gather(-2, at.expand(*at.shape[:-1], key.shape[-1]))
        # More than the rounding of the best score.
        rounding = torch.finfo(product_dtype(winner)).eps ** 0.5
        near = open_ >= best - rounding * (best.abs() + _norm(query) * _norm(winner))
        if near.count_nonzero() <= best.numel():  # each best one is near to itself alone
            return scores
        places = near.nonzero()
        index = places.unbind(-1)
        rows = index[:-1]
        counts = (index[-1] < at.squeeze(-1)[rows]) & (open_[index] > -torch.inf)
        if bias is not None:
            bias = bias.expand(open_.shape)
            counts &= bias[index] == bias.gather(-1, at).squeeze(-1)[rows]
        places = places[counts]
        equal = [
            (keys[(*entries, column)] == winner[(*entries, row)]).all(-1)
            for *entries, row, column in (
                some.unbind(-1) for some in places.split(max(1, ROOM // max(1, key.shape[-1])))
            )
        ]
        places = places[torch.cat(equal)]
        if not len(places):
            return scores
        near = torch.zeros_like(near)
        near[places.unbind(-1)] = True
    # The number of the best one with the gradient of its own.
    return torch.where(near, best.detach() + (scores - scores.detach()), scores)


def _norm(vectors: Tensor) -> Tensor:
    lengths: Tensor = torch.linalg.vector_norm(widen(vectors), dim=-1, keepdim=True)
    return lengths
