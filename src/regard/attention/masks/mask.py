"""The base class of masks: functions of positions, any window of which can be made dense."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple, TypeAlias

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.attention.by_name import not_callable, unknown
from regard.attention.shapes import Frame, Shape, ShapeError, check_device, check_plane


class Reach(NamedTuple):
    """The keys that some queries read: none outside of the `hull`, and all in `common`."""

    hull: range
    common: range

    @property
    def some(self) -> range:
        """Deprecated: `hull`."""
        warnings.warn("Reach.some is now Reach.hull", DeprecationWarning, stacklevel=2)
        return self.hull

    @property
    def every(self) -> range:
        """Deprecated: `common`."""
        warnings.warn("Reach.every is now Reach.common", DeprecationWarning, stacklevel=2)
        return self.common


class Place(NamedTuple):
    """Some queries and some keys of a frame."""

    rows: range
    columns: range
    frame: Frame


class Mask(ABC):
    """A rule that says which keys each query may read; `&` and `|` join two of them, `~` allows the other keys."""

    @abstractmethod
    def window(
        self, rows: Int[Tensor, " rows"], columns: Int[Tensor, " columns"], frame: Frame
    ) -> Bool[Tensor, "... #rows #columns"]:
        """Whether the queries at `rows` may read the keys at `columns`.

        Args:
            rows: positions of queries.
            columns: positions of keys.
            frame: the batch axes and lengths of the whole that this is a window of.

        Returns:
            A tensor that broadcasts to (*batch, rows, columns). True = may be read.
        """

    def reach(self, rows: range, frame: Frame) -> Reach:
        """Between which keys the queries at `rows` read, so that no others need be scored.

        This is a bound: the hull may be too wide, and too few keys `common`, as they are here.
        """
        return Reach(range(frame.keys), range(0))

    def runs(self, rows: range, frame: Frame) -> list[range]:
        """The same as `reach(rows, frame).hull`, as several runs of keys where nothing between them is read."""
        reach = self.reach(rows, frame).hull
        return [reach] if reach else []

    def check(self, frame: Frame) -> None:  # noqa: B027  (most masks have nothing to check)
        """Refuse numbers that cannot belong to these lengths; called once for each request."""

    def rules(self, place: Place | None = None) -> list[Mask]:
        """The masks that `&` joined; at a place, those of them that may forbid some of its pairs."""
        if place and covers(self.reach(place.rows, place.frame).common, place.columns):
            return []
        return [self]

    def parts(self) -> list[Mask]:
        """Deprecated: `rules()`."""
        warnings.warn("Mask.parts is now Mask.rules", DeprecationWarning, stacklevel=2)
        return self.rules()

    def breaks(self, frame: Frame) -> list[int]:
        """The positions of queries, in their order, at which other keys begin to be read."""
        return []

    def entries(self, frame: Frame) -> list[Mask] | None:
        """A mask for each entry of the first batch axis, or one for all; None where neither will do.

        The masks have no batch axes of their own.
        """
        return None

    def tensors(self) -> list[Tensor] | None:
        """The tensors that `window` reads; None where it may read others too."""
        return None

    def __getstate__(self) -> dict[str, Any]:
        """What copies and pickles hold: the rule, without what was worked out for the last request."""
        return {name: value for name, value in vars(self).items() if name != "_kept"}

    def dense(
        self, batch: Shape, queries: int, keys: int, device: torch.device | str | None = None
    ) -> Bool[Tensor, "... queries keys"]:
        """The whole mask, which broadcasts to (*batch, queries, keys).

        Example:
            >>> from regard.masks import causal
            >>> causal(align="start").dense((), 2, 3)
            tensor([[ True, False, False],
                    [ True,  True, False]])
        """
        frame = Frame(tuple(batch), queries, keys, torch.device(device or "cpu"))
        self.check(frame)
        rows = torch.arange(queries, device=frame.device)
        columns = torch.arange(keys, device=frame.device)
        dense = self.window(rows, columns, frame)
        return dense.expand(*dense.shape[:-2], queries, keys)

    def __and__(self, mask: MaskLike) -> Mask:
        return Both(self, as_mask(mask))

    def __rand__(self, mask: MaskLike) -> Mask:
        return Both(as_mask(mask), self)

    def __or__(self, mask: MaskLike) -> Mask:
        return Either(self, as_mask(mask))

    def __ror__(self, mask: MaskLike) -> Mask:
        return Either(as_mask(mask), self)

    def __invert__(self) -> Mask:
        return Complement(self)


MaskLike: TypeAlias = Mask | Tensor | Callable[[Tensor, Tensor], Tensor] | str

ARGUMENTS = {  # of the functions of regard.masks, for messages
    "causal": 'align="start"), or causal(align="end") where the last query stands at the last key',
    "band": "before, after)",
    "padding": "lengths)",
    "documents": "ids)",
    "packed": "lengths)",
}


def as_mask(mask: MaskLike) -> Mask:
    """The mask itself; a boolean tensor, or a function of positions, made one."""
    if isinstance(mask, Mask):
        return mask
    if isinstance(mask, Tensor):
        return Given(mask)
    if isinstance(mask, str):
        raise ValueError(f"mask {mask!r} is joined to others: pass {_described(mask)}")
    name = getattr(mask, "__name__", None)
    if name in ARGUMENTS and str(getattr(mask, "__module__", "")).startswith(__package__):
        raise TypeError(
            f"mask is the function regard.masks.{name}: call it, and pass the mask that it returns,"
            f" {_described(name)}"
        )
    if isinstance(mask, type) or not callable(mask):
        example = "a tensor of booleans, torch.as_tensor(mask), or a mask of regard.masks"
        raise not_callable("mask", mask, example)
    return Positional(mask)


def check_name(name: str, queries: int, keys: int) -> None:
    """Refuse every mask by name but "causal" over as many queries as keys."""
    if name != "causal":
        raise ValueError(f"mask {name!r} cannot be built from its name: pass {_described(name)}")
    if queries != keys:
        raise ShapeError(
            f"mask 'causal' is for as many queries as keys, there are {queries} queries and {keys}"
            f" keys: pass {_described(name)}"
        )


def _described(name: str) -> str:
    if name not in ARGUMENTS:
        raise unknown("mask", name, ARGUMENTS)
    return f"regard.masks.{name}({ARGUMENTS[name]}"


def check_boolean(mask: Tensor) -> None:
    if mask.dtype != torch.bool:
        raise TypeError(
            f"mask holds {str(mask.dtype).removeprefix('torch.')}: pass booleans,"
            " True = may be read; to add numbers to the scores, pass a bias"
        )


def check_whole(name: str, numbers: Tensor) -> None:
    """Refuse numbers that kernels would round in different ways."""
    if numbers.numel() and (numbers.dtype.is_floating_point or numbers.dtype == torch.bool):
        raise TypeError(
            f"{name} hold {str(numbers.dtype).removeprefix('torch.')}: pass whole numbers"
        )


def check_numbers(name: str, tensor: Tensor, device: torch.device | str = "cpu") -> None:
    """Refuse numbers on the device "meta", which holds none, unless the queries are there too."""
    if tensor.is_meta and str(device) != "meta":
        raise ValueError(
            f"{name} are on meta, where tensors hold no numbers: pass {name} on {device}"
        )


@dataclass(frozen=True, eq=False)
class Given(Mask):
    """A boolean tensor that broadcasts to (*batch, queries, keys)."""

    tensor: Tensor

    def __post_init__(self) -> None:
        check_boolean(self.tensor)

    def window(self, rows: Tensor, columns: Tensor, frame: Frame) -> Tensor:
        check_device("mask", self.tensor.device, rows.device)
        check_plane("mask", self.tensor.shape, frame.queries, frame.keys)
        plane = self.tensor if self.tensor.ndim >= 2 else self.tensor.expand(1, -1)
        return pick(pick(plane, -2, rows), -1, columns)

    def tensors(self) -> list[Tensor]:
        return [self.tensor]


@dataclass(frozen=True, eq=False)
class Positional(Mask):
    """The caller's function (query positions (rows, 1), key positions (1, columns)) -> booleans."""

    function: Callable[[Tensor, Tensor], Tensor]

    def window(self, rows: Tensor, columns: Tensor, frame: Frame) -> Tensor:
        readable = self.function(rows.unsqueeze(-1), columns.unsqueeze(-2))
        check_boolean(readable)
        check_device("mask", readable.device, rows.device)
        check_plane("mask", readable.shape, rows.shape[0], columns.shape[0])
        return readable if readable.ndim >= 2 else readable.expand(1, -1)


class SpanMask(Mask):
    """A mask by which each query may read all keys between two of them."""

    @abstractmethod
    def spans(self, frame: Frame, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The first key that each query (all, or those at `rows`) may read, and the one after the last.

        They are integers that broadcast to (*batch, queries or rows), perhaps beyond the keys there are.
        """

    def window(self, rows: Tensor, columns: Tensor, frame: Frame) -> Tensor:
        low, high = (side.unsqueeze(-1) for side in self.spans(frame, rows))
        return (columns >= low) & (columns < high)

    def reach(self, rows: range, frame: Frame) -> Reach:
        low, high = self.spans(frame, torch.arange(rows.start, rows.stop, device=frame.device))
        if not low.numel():
            return super().reach(rows, frame)
        keys = range(frame.keys)
        return Reach(
            overlap(range(int(low.min()), int(high.max())), keys),
            overlap(range(int(low.max()), int(high.min())), keys),
        )


@dataclass(frozen=True, eq=False)
class Joined(Mask):
    """Two masks as one."""

    left: Mask
    right: Mask

    def breaks(self, frame: Frame) -> list[int]:
        return sorted({*self.left.breaks(frame), *self.right.breaks(frame)})

    def entries(self, frame: Frame) -> list[Mask] | None:
        of_left, of_right = self.left.entries(frame), self.right.entries(frame)
        if of_left is None or of_right is None:
            return None
        return [type(self)(*pair) for pair in paired(of_left, of_right)]

    def check(self, frame: Frame) -> None:
        self.left.check(frame)
        self.right.check(frame)

    def tensors(self) -> list[Tensor] | None:
        of_left, of_right = self.left.tensors(), self.right.tensors()
        return None if of_left is None or of_right is None else of_left + of_right


class Both(Joined):
    """The keys that both masks allow."""

    def window(self, rows: Tensor, columns: Tensor, frame: Frame) -> Tensor:
        return self.left.window(rows, columns, frame) & self.right.window(rows, columns, frame)

    def reach(self, rows: range, frame: Frame) -> Reach:
        of_left, of_right = self.left.reach(rows, frame), self.right.reach(rows, frame)
        return Reach(overlap(of_left.hull, of_right.hull), overlap(of_left.common, of_right.common))

    def runs(self, rows: range, frame: Frame) -> list[range]:
        pairs = product(self.left.runs(rows, frame), self.right.runs(rows, frame))
        return [shared for pair in pairs if (shared := overlap(*pair))]

    def rules(self, place: Place | None = None) -> list[Mask]:
        return self.left.rules(place) + self.right.rules(place)


class Either(Joined):
    """The keys that at least one of the masks allows."""

    def window(self, rows: Tensor, columns: Tensor, frame: Frame) -> Tensor:
        return self.left.window(rows, columns, frame) | self.right.window(rows, columns, frame)

    def reach(self, rows: range, frame: Frame) -> Reach:
        of_left, of_right = self.left.reach(rows, frame), self.right.reach(rows, frame)
        return Reach(_hull(of_left.hull, of_right.hull), _union(of_left.common, of_right.common))

    def runs(self, rows: range, frame: Frame) -> list[range]:
        runs: list[range] = []
        alternatives = self.left.runs(rows, frame) + self.right.runs(rows, frame)
        for run in sorted(alternatives, key=lambda run: run.start):
            if runs and run.start <= runs[-1].stop:
                run = _hull(runs.pop(), run)
            runs.append(run)
        return runs

    def rules(self, place: Place | None = None) -> list[Mask]:
        if place is not None:
            for mask, alternative in ((self.left, self.right), (self.right, self.left)):
                reach, bound = (side.reach(place.rows, place.frame) for side in (mask, alternative))
                if covers(reach.common, overlap(bound.hull, place.columns)):
                    return mask.rules(place)
        return super().rules(place)


@dataclass(frozen=True, eq=False)
class Complement(Mask):
    """The keys that another mask does not allow."""

    mask: Mask

    def window(self, rows: Tensor, columns: Tensor, frame: Frame) -> Tensor:
        return ~self.mask.window(rows, columns, frame)

    def reach(self, rows: range, frame: Frame) -> Reach:
        reach = self.mask.reach(rows, frame)
        readable = _outside(reach.common, frame.keys)
        hull = range(readable[0].start, readable[-1].stop) if readable else range(0)
        return Reach(hull, max(_outside(reach.hull, frame.keys), key=len, default=range(0)))

    def runs(self, rows: range, frame: Frame) -> list[range]:
        return _outside(self.mask.reach(rows, frame).common, frame.keys)

    def entries(self, frame: Frame) -> list[Mask] | None:
        masks = self.mask.entries(frame)
        return None if masks is None else [Complement(mask) for mask in masks]

    def check(self, frame: Frame) -> None:
        self.mask.check(frame)

    def tensors(self) -> list[Tensor] | None:
        return self.mask.tensors()

    def __invert__(self) -> Mask:
        return self.mask


def paired(a: list[Any], b: list[Any]) -> Iterator[tuple[Any, Any]]:
    """The entries of two sides, side by side; a side of one entry has it for all of the other's."""
    size = len(b) if len(a) == 1 else len(a)
    return zip(*(side * size if len(side) == 1 else side for side in (a, b)), strict=True)


def overlap(run: range, limits: range) -> range:
    """The positions in both of two runs of them."""
    start = max(run.start, limits.start)
    stop = min(run.stop, limits.stop)
    return range(start, stop) if start < stop else range(0)


def covers(outer: range, inner: range) -> bool:
    """Whether all positions of the second run are in the first."""
    return not inner or (outer.start <= inner.start and inner.stop <= outer.stop)


def _outside(run: range, length: int) -> list[range]:
    """The runs of positions before and after a run of them."""
    sides = (range(run.start), range(run.stop, length)) if run else (range(length),)
    return [side for side in sides if side]


def _hull(run: range, neighbour: range) -> range:
    """The shortest run that holds two others."""
    if not run or not neighbour:
        return run or neighbour
    return range(min(run.start, neighbour.start), max(run.stop, neighbour.stop))


def _union(run: range, neighbour: range) -> range:
    """Two runs that meet as one; else the longer one."""
    if run and neighbour and max(run.start, neighbour.start) <= min(run.stop, neighbour.stop):
        return _hull(run, neighbour)
    return max(run, neighbour, key=len)


def pick(tensor: Tensor, axis: int, index: Tensor) -> Tensor:
    """These entries along an axis; an axis of size 1 stands for all of them, and stays."""
    return tensor if tensor.shape[axis] == 1 else tensor.index_select(axis, index)
