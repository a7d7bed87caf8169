"""The same weights over other batch axes: some entries alone, or groups of heads laid side by side.

Every tensor of a request is changed alike: it gets as many batch axes as the look has, some of size 1,
and then the change. Nothing is scored, so a look stays lazy.
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from regard.attention.kernels.request import Request
from regard.attention.masks import Mask
from regard.attention.masks.mask import Reach
from regard.attention.masks.positions import Band
from regard.attention.masks.sequences import Packed
from regard.attention.scores import Score
from regard.attention.scores.score import Change, PairScore, with_parameters
from regard.attention.shapes import Frame, Shape, ShapeError

Entry = int | slice


def selection(index: Any, shape: Shape) -> tuple[Entry, ...]:
    """An index of a look of this shape as a whole number or a slice for each batch axis.

    Raises:
        TypeError: it holds something else.
        IndexError: a number is out of range.
        ShapeError: there are more of them than batch axes.
    """
    batch = shape[:-2]
    indices = list(index) if isinstance(index, tuple) else [index]
    dots = sum(number is Ellipsis for number in indices)
    missing = len(batch) - (len(indices) - dots)
    if dots > 1:
        raise IndexError("a look's index has more than one ...: leave out all but one")
    if missing < 0:
        raise ShapeError(
            f"a look of shape {list(shape)} has {len(batch)} batch axes, got"
            f" {len(indices) - dots} indices: queries and keys are chosen by"
            " weights(rows=…, columns=…)"
        )
    at = next((n for n, number in enumerate(indices) if number is Ellipsis), len(indices))
    axes = [*indices[:at], *[slice(None)] * missing, *indices[at + 1 :]]
    return tuple(
        _entry(number, axis, size)
        for axis, (number, size) in enumerate(zip(axes, batch, strict=True))
    )


def _entry(index: Any, axis: int, size: int) -> Entry:
    if isinstance(index, slice):
        if index.step is not None and index.step < 1:
            raise IndexError(f"a slice of batch axis {axis} has step {index.step}: pass 1 or more")
        return index
    try:
        number = None if isinstance(index, bool) else operator.index(index)
    except (TypeError, RuntimeError):
        number = None
    if number is None:
        raise TypeError(
            f"a look is indexed by whole numbers, slices and ..., got {type(index).__name__} for"
            f" batch axis {axis}: for several entries take a slice, or a look of each"
        )
    if not -size <= number < size:
        raise IndexError(f"entry {number} of batch axis {axis}: it has {size}, counted from 0")
    return number % size


def select(request: Request, batch: Shape, entries: tuple[Entry, ...]) -> Request:
    """A request for these batch entries alone."""

    def pick_entries(tensor: Tensor) -> Tensor:
        indices = []
        for entry, size, full_size in zip(entries, tensor.shape, batch, strict=False):
            if size == full_size:
                indices.append(entry)
            else:
                indices.append(0 if isinstance(entry, int) else slice(None))
        return tensor[tuple(indices)]

    selected = tuple(
        len(range(size)[entry])
        for entry, size in zip(entries, batch, strict=True)
        if isinstance(entry, slice)
    )
    return with_batch(request, pick_entries, batch, selected)


def merge(request: Request, batch: Shape) -> Request:
    """A request in which the last two batch axes, key heads and their groups, are one: the heads."""
    rank, (outer, inner) = len(batch), batch[-2:]

    def merge_axes(tensor: Tensor) -> Tensor:
        if tensor.shape[rank - 2 : rank] != (1, 1):
            tensor = tensor.expand(*tensor.shape[: rank - 2], outer, inner, *tensor.shape[rank:])
        return tensor.flatten(rank - 2, rank - 1)

    return with_batch(request, merge_axes, batch, (*batch[:-2], outer * inner))


def with_batch(
    request: Request, change: Callable[[Tensor], Tensor], batch: Shape, new_batch: Shape
) -> Request:
    """The request with the batch axes of every tensor changed from `batch` to `new_batch`.

    `change` gets a tensor with all batch axes; one of size 1 stands for all entries. A score of the
    caller's may depend on all batch entries, so it is computed for all of them.
    """

    def change_all(tensor: Tensor, axes: int = 2) -> Tensor:
        """A tensor with some axes behind its batch axes. Without batch axes it is the same for all entries."""
        if tensor.ndim == axes:
            return tensor
        return change(tensor[(None,) * (len(batch) + axes - tensor.ndim)])

    query, key = request.query, request.key
    score: Score = with_parameters(request.score, change_all) or ChangedScore(
        request.score, change_all
    )
    if not isinstance(score, ChangedScore):
        query, key = change_all(query), change_all(key)
    mask = request.mask
    if isinstance(mask, Tensor):
        mask = change_all(mask)
    elif mask is not None and not isinstance(mask, Band | Packed):
        mask = ChangedMask(mask, request.frame, change_all)
    frame = request.frame._replace(batch=new_batch)
    changed_request = replace(request, query=query, key=key, score=score, mask=mask, frame=frame)
    return changed_request.with_bias(change_all)


class Stored(PairScore):
    """A score for weights that are there already: they are passed as the query."""

    def is_itself(self) -> bool:
        return True

    def with_parameters(self, change: Change) -> PairScore:
        return self

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
    frame: Frame
    change: Callable[[Tensor], Tensor]

    def window(self, rows: Tensor, columns: Tensor, frame: Frame) -> Tensor:
        return self.change(self.mask.window(rows, columns, self.frame))

    def reach(self, rows: range, frame: Frame) -> Reach:
        return self.mask.reach(rows, self.frame)

    def runs(self, rows: range, frame: Frame) -> list[range]:
        return self.mask.runs(rows, self.frame)
