"""What a mask allows over the scores of a request; a `Layout` works it out once for all layers that share it."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, TypeVar
from weakref import ref

import torch
from torch import Tensor

from regard.attention.masks.mask import Mask, covers
from regard.attention.masks.positions import Band
from regard.attention.shapes import Frame, Shape, broadcast
from regard.loops.availability import are_equal, capturing, has_numbers

KEPT = 1 << 20  # numbers of a tensor that stays in memory between calls
ONE_RUN = 128  # keys among which no others are left out
FEW_KEYS = 0.75  # of those between the first and the last: fewer are taken alone

Answer = TypeVar("Answer")


class Layout:
    """A mask over the scores of one frame.

    Attributes:
        is_triangle: whether this is the mask that torch's fused attention makes by itself.

    Raises:
        ShapeError: the mask is for other lengths.
    """

    def __init__(self, mask: Mask, frame: Frame, is_traced: bool) -> None:
        mask.check(frame)
        self._rule, self.frame = ref(mask), frame  # the mask keeps the layout
        self._is_traced = is_traced
        self._answers: dict[Hashable, Any] = {}
        self.is_triangle = _is_triangle(mask, frame, is_traced)

    def once(self, question: Hashable, answer: Callable[[], Answer]) -> Answer:
        """The answer to a question about the mask; a large tensor is worked out again each time.

        So is all that a CUDA graph captures: it has no numbers before the graph runs.
        """
        if question in self._answers:
            stored: Answer = self._answers[question]
            return stored
        result = answer()
        is_large = any(tensor.numel() > KEPT for tensor in _tensors(result))
        if not (is_large or capturing(self.frame.device)):
            self._answers[question] = result
        return result

    @property
    def mask(self) -> Mask:
        """The mask itself, which a layout does not keep alive."""
        mask = self._rule()
        assert mask is not None, "the mask of this layout no longer exists"
        return mask

    @property
    def common_keys(self) -> range | None:
        """The keys that every query reads, if no query reads any other; None where this cannot be told."""
        return self.once("common keys", self._common_keys)

    @property
    def batch(self) -> Shape:
        """The batch axes of the scores with those of the mask."""
        return self.once("batch", self._batch)

    def dense(self) -> Tensor:
        """Which keys may be read; broadcasts to (*batch, queries, keys)."""
        return self.once("dense", self._dense)

    def _common_keys(self) -> range | None:
        batch, queries, keys, device = self.frame
        if self._is_traced or device.type != "cpu" or not (queries and keys):
            return None
        readable, common = self.mask.reach(range(queries), self.frame)
        if not (readable and covers(common, readable)):
            return None
        # Some entries of the batch may be those of the mask alone.
        return readable if self.batch == batch else None

    def _batch(self) -> Shape:
        if isinstance(self.mask, Band):
            return self.frame.batch
        # One pair, as a function of the caller's may not take empty tensors.
        sizes = (min(1, n) for n in (self.frame.queries, self.frame.keys))
        corner = self._window(*(torch.arange(n, device=self.frame.device) for n in sizes))
        return broadcast(self.frame.batch, tuple(corner.shape[:-2]))

    def _dense(self) -> Tensor:
        lengths = self.frame.queries, self.frame.keys
        return self._window(*(torch.arange(n, device=self.frame.device) for n in lengths))

    def _window(self, rows: Tensor, columns: Tensor) -> Tensor:
        return self.mask.window(rows, columns, self.frame)


def reads_of(mask: Mask, rows: range, frame: Frame) -> tuple[list[range], range]:
    """The keys that some of these queries read, and those that all of them read.

    The former are one run where that is nearly all of the keys between the first and the last.
    """
    hull, common = mask.reach(rows, frame)
    runs = mask.runs(rows, frame) if len(hull) > ONE_RUN else [hull] if hull else []
    if runs:
        hull = range(runs[0].start, runs[-1].stop)
    return runs if sum(map(len, runs)) < FEW_KEYS * len(hull) or not runs else [hull], common


def positions_of(runs: Sequence[range], device: torch.device) -> Tensor:
    """The positions in some runs of them, in their order."""
    positions = [torch.arange(run.start, run.stop, device=device) for run in runs]
    return positions[0] if len(positions) == 1 else torch.cat(positions)


def _is_triangle(mask: Mask, frame: Frame, is_traced: bool) -> bool:
    if not isinstance(mask, Band):
        return False
    if is_traced and mask.align == "end":
        return are_equal(frame.queries, frame.keys) and mask.is_triangle(1, 1)
    return mask.is_triangle(frame.queries, frame.keys)


class _Kept(NamedTuple):
    """A layout that its mask keeps, and the tensors of the mask as they were.

    torch does not count what NumPy or `.data` writes to a tensor, so copies are compared as well.
    """

    layout: Layout
    inference: bool  # tensors that were made in this mode have no gradients outside of it
    tensors: list[tuple[Tensor, int, Tensor | None]]  # the counts of writes to them, and copies


def lay(mask: Mask, frame: Frame, is_traced: bool) -> Layout:
    """The mask over this frame. The mask keeps the last layout; a compiler or transform gets its own."""
    if is_traced:
        return Layout(mask, frame, is_traced)
    if (layout := kept_layout(mask, frame)) is not None:
        return layout
    layout, tensors = Layout(mask, frame, is_traced), mask.tensors()
    if tensors is not None and all(_is_comparable(tensor) for tensor in tensors):
        copies = [(t, t._version, t.clone() if has_numbers(t) else None) for t in tensors]
        vars(mask)["_kept"] = _Kept(layout, torch.is_inference_mode_enabled(), copies)
    return layout


def kept_layout(mask: object, frame: Frame) -> Layout | None:
    """The layout that a mask keeps, where it is for this frame, and the mask is as it was."""
    memo: _Kept | None = getattr(mask, "_kept", None)
    if memo is None or memo.layout.frame != frame:
        return None
    if memo.inference != torch.is_inference_mode_enabled():
        return None
    for tensor, version, copy in memo.tensors:
        if tensor._version != version or (copy is not None and not torch.equal(tensor, copy)):
            return None
    return memo.layout


def _is_comparable(tensor: Tensor) -> bool:
    """Whether torch counts the writes to a tensor, and it is small enough for a copy."""
    return not tensor.is_inference() and tensor.numel() <= KEPT


def _tensors(answer: Any) -> list[Tensor]:
    sides = answer if isinstance(answer, tuple) else (answer,)
    return [side for side in sides if isinstance(side, Tensor)]
