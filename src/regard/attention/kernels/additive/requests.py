"""Which requests the kernels for additive scores can serve, and the tensors of a call."""

from collections.abc import Sequence
from functools import reduce
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.attention.kernels.additive.spans import bounds_of
from regard.attention.kernels.request import Request, name_of
from regard.attention.masks import Mask
from regard.attention.masks.sequences import Documents
from regard.attention.normalisers import Softmax
from regard.attention.products import fitted
from regard.attention.scores import PairScore
from regard.attention.scores.score import pairwise
from regard.attention.shapes import Frame, Shape, broadcast
from regard.loops.availability import differentiated

# Axes of their own that the sides have, behind those of the batch.
OWN = (2, 2, 1, 2, 2, 2, 2, 1, 1)


def additive_objection(request: Request, value: Tensor) -> str | None:
    """Why this is no softmax over additive scores; None when it is."""
    score: Any = request.score
    inner = score.capped()[0] if isinstance(score, PairScore) else score
    if not (isinstance(inner, PairScore) and inner.is_additive):
        return f"{name_of(inner)} is not an additive score"
    if pairwise(score) is None:
        replaced = inner if pairwise(inner) is None else score
        return f"{name_of(replaced)} has methods or hooks of its own: only a call of it is exact"
    if type(request.normaliser) is not Softmax:
        return f"{name_of(request.normaliser)} is not a softmax"
    if request.dropout:
        return "it has no dropout"
    if differentiated():
        return "it has gradients for torch.autograd only: pin regard.kernel('blocked')"
    sizes = (request.query, request.key, value, inner.weight)  # type: ignore[attr-defined]
    if not all(tensor.numel() for tensor in sizes):
        return "an axis has size 0"
    return None


class Rules(NamedTuple):
    """Which keys may be read: spans of keys, documents, booleans; each may be missing.

    Spans cost memory O(queries), and keys outside of them are never visited. Documents that are no runs of
    keys are two rows of numbers within spans. Other masks (a tensor, a function) become booleans.
    """

    low: Tensor | None = None
    high: Tensor | None = None
    asking: Tensor | None = None
    stored: Tensor | None = None
    mask: Tensor | None = None


def rules_of(mask: Mask | Tensor | None, frame: Frame) -> Rules:
    """The rules of a request's mask."""
    if isinstance(mask, Tensor):
        return Rules(mask=mask)
    asking = stored = dense = None
    for rule in without_exact_bounds(mask, frame):
        if isinstance(rule, Documents) and asking is None:
            asking, stored = (
                ids.long().expand(*ids.shape[:-1], length)
                for ids, length in zip(rule.ids(frame), (frame.queries, frame.keys), strict=True)
            )
        else:
            rows, columns = (
                torch.arange(n, device=frame.device) for n in (frame.queries, frame.keys)
            )
            window = rule.window(rows, columns, frame)
            dense = window if dense is None else dense & window
    low, high = joint_spans(mask, frame) or (None, None)
    return Rules(low, high, asking, stored, dense)


def is_written_out(mask: Mask | Tensor | None, frame: Frame) -> bool:
    """Whether a mask becomes booleans, one for each query and key."""
    if isinstance(mask, Tensor):
        return False
    rules = without_exact_bounds(mask, frame)
    return len(rules) > 1 or any(not isinstance(rule, Documents) for rule in rules)


def without_exact_bounds(mask: Mask | None, frame: Frame) -> list[Mask]:
    """The rules of a mask, joined by `&`, that spans of keys do not express."""
    bounds = [(rule, bounds_of(rule, frame)) for rule in mask.rules()] if mask else []
    return [rule for rule, bound in bounds if bound is None or not bound.exact]


def joint_spans(mask: Mask | Tensor | None, frame: Frame) -> tuple[Tensor, Tensor] | None:
    """The keys between which each query reads; None where these are all keys, or not known."""
    rules = mask.rules() if isinstance(mask, Mask) else []
    reached = [bounds_of(rule, frame) for rule in rules]
    spans = [bounds[:2] for bounds in reached if bounds is not None]
    if not spans:
        return None
    low, high = zip(*spans, strict=True)
    return reduce(torch.maximum, low), reduce(torch.minimum, high)


def operands(
    request: Request, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, float, float]:
    """a, c, w and the bias in a dtype, the cap (0 is none), the temperature."""
    score, cap = request.score.capped()  # type: ignore[attr-defined]
    bias, temperature = request.bias_of(), request.normaliser.temperature  # type: ignore[attr-defined]
    a, c = score.query_features(request.query.to(dtype)), score.key_features(request.key.to(dtype))
    plane = None if bias is None else fitted(bias, dtype, temperature).to(dtype)
    return a.to(dtype), c.to(dtype), score.weight.to(dtype), plane, cap, temperature


class Sides(NamedTuple):
    """The tensors of a call, each with batch axes of its own in front; a missing one is empty."""

    a: Tensor  # (queries, hidden)
    c: Tensor  # (keys, hidden)
    w: Tensor  # (hidden)
    v: Tensor  # (keys, d_value)
    spans: Tensor  # (2, queries): between which keys each query reads
    bias: Tensor
    mask: Tensor
    asking: Tensor  # documents of the queries
    stored: Tensor  # and of the keys


def sides_of(
    a: Tensor, c: Tensor, w: Tensor, v: Tensor, bias: Tensor | None, rules: Rules
) -> Sides:
    """The tensors of a call, with the rules of its mask as the loops read them."""
    queries, keys = a.shape[-2], c.shape[-2]
    if rules.low is None or rules.high is None:
        low = torch.zeros(queries, dtype=torch.int64, device=a.device)
        spans = torch.stack([low, torch.full_like(low, keys)])
    else:
        spans = torch.stack(torch.broadcast_tensors(rules.low, rules.high), -2).clamp(0, keys)
        spans = spans.expand(*spans.shape[:-1], queries)
    nothing, mask = torch.empty(0, dtype=torch.int64, device=a.device), rules.mask
    return Sides(
        *(a, c, w, v, spans),
        a.new_empty(0, 0) if bias is None else bias,
        a.new_empty(0, 0).byte() if mask is None else mask.contiguous().view(torch.uint8),
        nothing if rules.asking is None else rules.asking,
        nothing if rules.stored is None else rules.stored,
    )


def batch_of(sides: Sequence[Tensor]) -> Shape:
    """The batch axes of the reading."""
    return broadcast(*(tuple(t.shape[: t.ndim - n]) for t, n in zip(sides, OWN, strict=True)))


def flatten(sides: Sequence[Tensor], batch: Shape) -> tuple[Sides, Tensor]:
    """Each side as (entries, *own axes), and (batch, sides): the entry that each entry of the batch reads."""
    places = torch.arange(prod(batch), device=sides[0].device)
    flat, where = [], places.new_zeros(len(places), len(OWN))
    for k, (tensor, axes) in enumerate(zip(sides, OWN, strict=True)):
        front, shape = tensor.shape[: tensor.ndim - axes], tensor.shape[tensor.ndim - axes :]
        entries = prod(front)
        if front == batch:
            where[:, k] = places
        elif entries > 1:
            index = torch.arange(entries, device=tensor.device).reshape(front)
            where[:, k] = index.expand(batch).reshape(-1)
        flat.append(tensor.reshape(entries, *shape))
    return Sides(*flat), where
