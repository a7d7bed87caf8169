"""The same weights over other batch axes: some entries alone, or groups of heads laid side by side.

Every part of a request is changed alike: it gets as many batch axes as the look has, some of size 1,
and then the change. Nothing is scored, so a look stays lazy.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from operator import index
from typing import Any, TypeVar

import torch
from torch import Tensor

from regard.attention.kernels.recomputing import Surroundings
from regard.attention.kernels.reference import weigh
from regard.attention.kernels.request import Request
from regard.attention.masks import Mask
from regard.attention.masks.mask import Reach
from regard.attention.masks.positions import Band
from regard.attention.masks.sequences import Packed
from regard.attention.normalisers import is_plain as is_plain_normaliser
from regard.attention.scores import Additive, General, Score, SoftCap
from regard.attention.scores.prepare import PreparedAdditive, is_additive, is_cap, is_dots, is_plain
from regard.attention.shapes import Frame, Shape, ShapeError
from regard.attention.versions import Reads, Versions
from regard.loops.availability import transformed

Entry = int | slice
Owner = TypeVar("Owner", Additive, General)


def selection(wanted: Any, shape: Shape) -> tuple[Entry, ...]:
    """An index of a look of this shape as a whole number or a slice for each batch axis.

    Raises:
        TypeError: it holds something else.
        IndexError: a number is out of range.
        ShapeError: there are more of them than batch axes.
    """
    batch = shape[:-2]
    parts = list(wanted) if isinstance(wanted, tuple) else [wanted]
    dots = sum(part is Ellipsis for part in parts)
    missing = len(batch) - (len(parts) - dots)
    if dots > 1:
        raise IndexError("a look's index has more than one ...: leave out all but one")
    if missing < 0:
        raise ShapeError(
            f"a look of shape {list(shape)} has {len(batch)} batch axes, got"
            f" {len(parts) - dots} indices: queries and keys are chosen by"
            " weights(rows=…, columns=…)"
        )
    whole = [slice(None)] * missing
    at = next((n for n, part in enumerate(parts) if part is Ellipsis), len(parts))
    axes = [*parts[:at], *whole, *parts[at + 1 :]]
    return tuple(
        _entry(part, axis, size) for axis, (part, size) in enumerate(zip(axes, batch, strict=True))
    )


def _entry(part: Any, axis: int, size: int) -> Entry:
    if isinstance(part, slice):
        if part.step is not None and part.step < 1:
            raise IndexError(f"a slice of batch axis {axis} has step {part.step}: pass 1 or more")
        return part
    try:
        number = None if isinstance(part, bool) else index(part)
    except (TypeError, RuntimeError):
        number = None
    if number is None:
        raise TypeError(
            f"a look is indexed by whole numbers, slices and ..., got {type(part).__name__} for"
            f" batch axis {axis}: for several entries take a slice, or a look of each"
        )
    if not -size <= number < size:
        raise IndexError(f"entry {number} of batch axis {axis}: it has {size}, counted from 0")
    return number % size


def select(request: Request, batch: Shape, entries: tuple[Entry, ...]) -> Request:
    """A request for these batch entries alone."""

    def of(part: Tensor) -> Tensor:
        own = []
        for entry, size, whole in zip(entries, part.shape, batch, strict=False):
            if size == whole:
                own.append(entry)
            else:
                own.append(0 if isinstance(entry, int) else slice(None))
        return part[tuple(own)]

    after = tuple(
        len(range(size)[entry])
        for entry, size in zip(entries, batch, strict=True)
        if isinstance(entry, slice)
    )
    return changed(request, of, batch, after)


def merge(request: Request, batch: Shape) -> Request:
    """A request in which the last two batch axes, key heads and their groups, are one: the heads."""
    rank, (outer, inner) = len(batch), batch[-2:]

    def of(part: Tensor) -> Tensor:
        if part.shape[rank - 2 : rank] != (1, 1):
            part = part.expand(*part.shape[: rank - 2], outer, inner, *part.shape[rank:])
        return part.flatten(rank - 2, rank - 1)

    return changed(request, of, batch, (*batch[:-2], outer * inner))


def changed(
    request: Request, of: Callable[[Tensor], Tensor], before: Shape, after: Shape
) -> Request:
    """The request with the batch axes of every part changed from `before` to `after`.

    `of` gets a part with all batch axes; one of size 1 stands for all entries. A score of the
    caller's may depend on all batch entries, so it is computed for all of them.
    """

    def change(part: Tensor, own: int = 2) -> Tensor:
        """A part with `own` axes of its own. Without others it is the same for all entries."""
        return part if part.ndim == own else of(part[(None,) * (len(before) + own - part.ndim)])

    query, key = request.query, request.key
    score = with_parameters(request.score, change)
    if score is None:
        score = ChangedScore(request.score, change)
    else:
        query, key = change(query), change(key)
    mask = request.mask
    if isinstance(mask, Tensor):
        mask = change(mask)
    elif mask is not None and not isinstance(mask, Band | Packed):
        mask = ChangedMask(mask, request.frame, change)
    return replace(
        request,
        query=query,
        key=key,
        score=score,
        bias=None if request.bias is None else change(request.bias),
        mask=mask,
        frame=request.frame._replace(batch=after),
    )


def with_tensors(request: Request, of: Callable[[Tensor], Tensor]) -> Request | None:
    """The request with other tensors; None where a function of the caller's may hide some."""
    score = with_parameters(request.score, lambda parameter, own: of(parameter))
    if score is None or not is_plain_normaliser(request.normaliser):
        return None
    bias = None if request.bias is None else of(request.bias)
    query, key = of(request.query), of(request.key)
    return replace(request, query=query, key=key, score=score, bias=bias)


def versions_of(request: Request) -> Versions:
    """The tensors that the weights are made of, with the present counts of their writes.

    Where a function of the caller's may read others, it is called for one row, which shows them.
    """
    if transformed():
        return Versions()
    query = "weights" if isinstance(request.score, Stored) else "query"
    tensors = [(query, request.query), ("key", request.key)]
    if request.bias is not None:
        tensors.append(("bias", request.bias))

    def keep(parameter: Tensor, own: int) -> Tensor:
        tensors.append(("a parameter of the score", parameter))
        return parameter

    of_mask = request.mask_tensors()
    tensors += [("mask", each) for each in of_mask or ()]
    score = with_parameters(request.score, keep)
    if not (score is None or of_mask is None) and is_plain_normaliser(request.normaliser):
        return Versions(tensors)
    row = torch.arange(min(1, request.queries), device=request.frame.device)
    reads = Reads(tensors)
    with Surroundings(request.query).again(), reads:
        weigh(request, row)
    return reads.versions()


def with_parameters(score: Score, of: Callable[[Tensor, int], Tensor]) -> Score | None:
    """The score with other parameters; None for one of the caller's, which may hide some.

    `of` is called for every parameter that the score still uses, with the number of its own axes:
    the axes before them are those of heads.
    """
    if type(score) is SoftCap and is_cap(score):
        inner = with_parameters(score.score, of)
        return None if inner is None else SoftCap(inner, score.cap)
    if type(score) is PreparedAdditive and type(score.score) is Additive:
        used = ("weight",) if score.projected else ("query_weight", "weight", "bias")
        return PreparedAdditive(_twin(score.score, of, 1, used), score.projected)
    if type(score) is Additive and is_additive(score):
        return _twin(score, of, 1)
    if type(score) is General and is_dots(score):
        return _twin(score, of, 2)
    return score if is_plain(score) or isinstance(score, Stored) else None


def _twin(
    score: Owner, of: Callable[[Tensor, int], Tensor], own: int, used: tuple[str, ...] | None = None
) -> Owner:
    """The same score with other parameters, where `own` axes of its weight are not those of heads."""
    heads = score.weight.ndim - own
    twin = copy(score)
    twin.__dict__["_parameters"] = {
        name: each if each is None or (used and name not in used) else of(each, each.ndim - heads)
        for name, each in score._parameters.items()
    }
    return twin


class Stored:
    """A score for weights that are there already: they are passed as the query."""

    def __call__(self, query: Tensor, key: Tensor, /) -> Tensor:
        return query


@dataclass(frozen=True)
class ChangedScore:
    """The scores of all batch entries, changed."""

    score: Score
    change: Callable[[Tensor], Tensor]

    def __call__(self, query: Tensor, key: Tensor, /) -> Tensor:
        return self.change(self.score(query, key))


@dataclass(frozen=True, eq=False)
class ChangedMask(Mask):
    """A rule over the batch axes of another frame, changed."""

    mask: Mask
    before: Frame
    change: Callable[[Tensor], Tensor]

    def window(self, rows: Tensor, columns: Tensor, frame: Frame) -> Tensor:
        return self.change(self.mask.window(rows, columns, self.before))

    def reach(self, rows: range, frame: Frame) -> Reach:
        return self.mask.reach(rows, self.before)
