"""Masks of sequences of unequal lengths: padded, or side by side on one axis."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from regard.attention.masks.mask import (
    Mask,
    Reach,
    SpanMask,
    check_numbers,
    check_whole,
    paired,
    pick,
)
from regard.attention.shapes import Frame, ShapeError
from regard.loops.availability import has_numbers


@dataclass(frozen=True, eq=False)
class Padding(SpanMask):
    """The first `lengths` keys of each batch entry may be read."""

    lengths: Tensor

    def check(self, frame: Frame) -> None:
        lengths = self.lengths
        check_numbers("lengths", lengths, frame.device)
        if not lengths.numel() or not has_numbers(lengths):
            return
        longest = int(lengths.max())
        if longest > frame.keys:
            raise ShapeError(
                f"a length is {longest}, the memory holds {frame.keys} keys: pass lengths of at most {frame.keys}"
            )
        if lengths.ndim > 1 and lengths.shape[-1] == frame.keys > 1 >= longest:
            raise ShapeError(
                f"lengths of shape {list(lengths.shape)} hold 0 and 1 alone, for {frame.keys} keys: an attention"
                " mask has its number of keys as lengths, attention_mask.sum(-1)"
            )

    def reach(self, rows: range, frame: Frame) -> Reach:
        """The same as from `spans`, by two numbers."""
        if not self.lengths.numel():
            return super().reach(rows, frame)
        shortest, longest = (int(length) for length in self.lengths.aminmax())
        ends = (range(max(0, min(length, frame.keys))) for length in (longest, shortest))
        return Reach(*ends)

    def window(self, rows: Tensor, columns: Tensor, frame: Frame) -> Tensor:
        """The same as from `spans`, without the comparison to the first key."""
        return columns < self.spans(frame)[1].unsqueeze(-1)

    def spans(self, frame: Frame, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        lengths = self.lengths.to(frame.device, torch.int64)
        lengths = _lead(lengths, 0, frame, "lengths")[..., None]
        return torch.zeros_like(lengths), lengths

    def entries(self, frame: Frame) -> list[Mask] | None:
        _lead(self.lengths, 0, frame, "lengths")  # checks the shape
        entries = _entries(self.lengths, 0, frame)
        return None if entries is None else [Padding(lengths) for lengths in entries]

    def tensors(self) -> list[Tensor]:
        return [self.lengths]


def padding(lengths: Int[Tensor, "*batch"] | Sequence[Any] | int) -> Mask:
    """The first `lengths` keys of each batch entry may be read; the padding after them may not.

    Args:
        lengths: number of keys of each entry, over the leading batch axes: lengths of shape
            (batch) serve scores of shape (batch, heads, queries, keys). Of an attention mask of
            zeros and ones, (batch, keys), they are ``attention_mask.sum(-1)``.

    Raises:
        TypeError: lengths that are not whole numbers.
        ValueError: a length is negative; by what reads under the mask: lengths are on the device "meta".
        ShapeError: by what reads under the mask: a length is above the number of keys, or lengths of
            two axes are an attention mask.

    Lengths on a GPU, and those that a compiler or transform traces, are not read for these checks:
    there a negative length is 0, and one above the number of keys is all keys.

    Example:
        >>> padding([1, 3]).dense((2,), 1, 3)
        tensor([[[ True, False, False]],
        <BLANKLINE>
                [[ True,  True,  True]]])
    """
    lengths = _tensor("lengths", lengths)
    check_whole("lengths", lengths)
    if lengths.numel() and has_numbers(lengths) and (shortest := int(lengths.min())) < 0:
        raise ValueError(f"a length is {shortest}: pass lengths of at least 0")
    return Padding(lengths)


@dataclass(frozen=True, eq=False)
class Documents(Mask):
    """A query reads the keys of its own document."""

    query_ids: Tensor
    key_ids: Tensor

    def check(self, frame: Frame) -> None:
        check_numbers("query_ids", self.query_ids, frame.device)
        check_numbers("key_ids", self.key_ids, frame.device)

    def ids(self, frame: Frame) -> tuple[Tensor, Tensor]:
        """The ids of the queries and of the keys, with as many batch axes as the scores."""
        sides = []
        for name, length in (("query_ids", frame.queries), ("key_ids", frame.keys)):
            ids = getattr(self, name).to(frame.device)
            if ids.shape[-1] not in (1, length):
                raise ShapeError(
                    f"{name} covers {ids.shape[-1]} positions, there are {length}:"
                    f" pass {name} of shape [..., {length}]"
                )
            sides.append(_lead(ids, 1, frame, name))
        return sides[0], sides[1]

    def window(self, rows: Tensor, columns: Tensor, frame: Frame) -> Tensor:
        asking, stored = self.ids(frame)
        return pick(asking, -1, rows).unsqueeze(-1) == pick(stored, -1, columns).unsqueeze(-2)

    def tensors(self) -> list[Tensor]:
        return [self.query_ids, self.key_ids]

    def reach(self, rows: range, frame: Frame) -> Reach:
        """From the first to the last key of these queries' documents."""
        asking, stored = self.query_ids, self.key_ids
        if stored.shape[-1] != frame.keys or asking.shape[-1] != frame.queries:
            return super().reach(rows, frame)
        row_ids = asking[..., rows.start : rows.stop]
        if not (row_ids.numel() and stored.numel()):
            return super().reach(rows, frame)
        low, high = (int(document) for document in row_ids.aminmax())
        same = stored == low if low == high else torch.isin(stored, row_ids.unique())
        keys = same.reshape(-1, frame.keys).any(0).nonzero()
        if not keys.numel():
            return Reach(range(0), range(0))
        columns = range(int(keys[0]), int(keys[-1]) + 1)
        alone = low == high and bool(same[..., columns.start : columns.stop].all())
        return Reach(columns, columns if alone else range(0))

    def breaks(self, frame: Frame) -> list[int]:
        differ = self.query_ids[..., 1:] != self.query_ids[..., :-1]
        breaks: list[int] = (differ.nonzero()[:, -1].unique() + 1).tolist()
        return breaks

    def entries(self, frame: Frame) -> list[Mask] | None:
        self.ids(frame)  # checks the lengths
        queries, keys = (_entries(ids, 1, frame) for ids in (self.query_ids, self.key_ids))
        if queries is None or keys is None:
            return None
        return [_runs(*ids, frame) or Documents(*ids) for ids in paired(queries, keys)]


def _runs(query_ids: Tensor, key_ids: Tensor, frame: Frame) -> Mask | None:
    """The documents of one batch entry as packed sentences, where both axes have them in one order."""
    sides = ((query_ids, frame.queries), (key_ids, frame.keys))
    runs = [ids.expand(length).unique_consecutive(return_counts=True) for ids, length in sides]
    (documents, lengths), (key_documents, key_lengths) = (
        [values.tolist() for values in run] for run in runs
    )
    if documents != key_documents or len({*documents}) < len(documents):
        return None
    return Packed(tuple(lengths), tuple(key_lengths))


def _entries(tensor: Tensor, axes: int, frame: Frame) -> list[Tensor] | None:
    """A copy for each entry of the first batch axis, or one for all; None where other axes count."""
    batch = tensor.shape[: tensor.ndim - axes]
    if math.prod(batch[1:]) > 1:
        return None
    rows = tensor.reshape(-1, *tensor.shape[tensor.ndim - axes :]).to(frame.device, copy=True)
    same = rows.shape[0] > 0 and bool((rows == rows[:1]).all())
    return [rows[0]] if same else list(rows)


def documents(
    query_ids: Int[Tensor, "*batch queries"], key_ids: Int[Tensor, "*other keys"] | None = None
) -> Mask:
    """A query reads the keys of its own document, for documents packed into one row.

    Args:
        query_ids: the document of each query, (*leading batch axes, queries).
        key_ids: the document of each key, (*leading batch axes, keys); the queries' by default.

    Raises:
        TypeError: ids that are not whole numbers.

    Example:
        >>> import torch
        >>> documents(torch.tensor([0, 0, 1])).dense((), 3, 3).int()
        tensor([[1, 1, 0],
                [1, 1, 0],
                [0, 0, 1]], dtype=torch.int32)
    """
    query_ids = _tensor("query_ids", query_ids)
    key_ids = query_ids if key_ids is None else _tensor("key_ids", key_ids)
    check_whole("query_ids", query_ids)
    check_whole("key_ids", key_ids)
    return Documents(query_ids, key_ids)


@dataclass(frozen=True)
class Packed(SpanMask):
    """A query reads the keys of its own sentence; lengths are those of sentences in their order."""

    lengths: tuple[int, ...]
    key_lengths: tuple[int, ...]

    def spans(self, frame: Frame, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        counts = torch.tensor(self.lengths, dtype=torch.int64, device="cpu")
        sizes = torch.tensor(self.key_lengths, dtype=torch.int64, device="cpu")
        ends = sizes.cumsum(0)
        starts = ends - sizes
        low, high = (side.repeat_interleave(counts).to(frame.device) for side in (starts, ends))
        return (low, high) if rows is None else (low[rows], high[rows])

    @cached_property
    def ends(self) -> list[int]:
        """The position after the last query of each sentence."""
        return [*accumulate(self.lengths)]

    @cached_property
    def key_ends(self) -> list[int]:
        """The position after the last key of each sentence."""
        return [*accumulate(self.key_lengths)]

    def reach(self, rows: range, frame: Frame) -> Reach:
        """The same as from `spans`, without tensors: this is called for every tile of a mask."""
        if not rows:
            return super().reach(rows, frame)
        low, high = (bisect_right(self.ends, row) for row in (rows[0], rows[-1]))
        columns = range(self.key_ends[low] - self.key_lengths[low], self.key_ends[high])
        return Reach(columns, columns if low == high else range(0))

    def breaks(self, frame: Frame) -> list[int]:
        return sorted({*self.ends} - {0, frame.queries})

    def entries(self, frame: Frame) -> list[Mask]:
        return [self]

    def tensors(self) -> list[Tensor]:
        return []

    def check(self, frame: Frame) -> None:
        for name, lengths, count, kind in (
            ("lengths", self.lengths, frame.queries, "queries"),
            ("key_lengths", self.key_lengths, frame.keys, "keys"),
        ):
            if sum(lengths) != count:
                raise ShapeError(
                    f"{name} add up to {sum(lengths)}, there are {count} {kind}:"
                    " pass the length of every sentence on the axis"
                )


def packed(
    lengths: Int[Tensor, " sentences"] | Sequence[int],
    key_lengths: Int[Tensor, " sentences"] | Sequence[int] | None = None,
) -> Mask:
    """Sentences packed into one row without padding; a query reads the keys of its own sentence.

    The same mask as `documents`, from lengths: the kernels compute only the blocks on the diagonal.
    From cumulative lengths: `packed(offsets.diff())`. Joined by `&` with `causal(align="start")`,
    each sentence is causal in itself where it has as many keys as queries.

    Args:
        lengths: queries of each sentence, in their order; they add up to all queries.
        key_lengths: keys of each sentence; as many as its queries by default.

    Raises:
        ValueError: a length is negative, or there are more sentences of queries than of keys, or fewer.

    Example:
        >>> packed([1, 2]).dense((), 3, 3).int()
        tensor([[1, 0, 0],
                [0, 1, 1],
                [0, 1, 1]], dtype=torch.int32)
    """
    counts = _counts(lengths)
    key_counts = counts if key_lengths is None else _counts(key_lengths)
    if len(counts) != len(key_counts):
        raise ValueError(
            f"there are {len(counts)} lengths and {len(key_counts)} key_lengths:"
            " pass one of each for every sentence"
        )
    return Packed(counts, key_counts)


def _counts(lengths: Tensor | Sequence[int]) -> tuple[int, ...]:
    tensor = _tensor("lengths", lengths)
    check_numbers("lengths", tensor)
    if tensor.ndim != 1 or (tensor.numel() and tensor.dtype.is_floating_point):
        raise ValueError(
            f"lengths have shape {list(tensor.shape)} and hold {tensor.dtype}:"
            " pass one whole number for each sentence"
        )
    if bool((tensor < 0).any()):
        raise ValueError("a length is negative: for cumulative lengths pass their differences")
    return tuple(int(length) for length in tensor.tolist())


def _tensor(name: str, numbers: Any) -> Tensor:
    """A tensor as it is; numbers, a list of them or an array as a tensor on the processor."""
    if isinstance(numbers, Tensor):
        return numbers
    try:
        return torch.as_tensor(numbers, device="cpu")
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"{name} are {numbers!r:.60}: pass a tensor or a list of whole numbers"
        ) from error


def _lead(tensor: Tensor, axes_of_entry: int, frame: Frame, name: str) -> Tensor:
    """A tensor (*leading batch axes, *own axes), with axes of size 1 up to the batch's rank."""
    axes, rank = tensor.ndim - axes_of_entry, len(frame.batch)
    if axes > rank:
        raise ShapeError(
            f"{name} has {axes} batch axes, the scores have {rank}:"
            f" pass {name} that follow the leading batch axes of {list(frame.batch)}"
        )
    for length, size in zip(tensor.shape[:axes], frame.batch, strict=False):
        if length != size and length != 1 and size != 1:
            raise ShapeError(
                f"{name} has batch axes {list(tensor.shape[:axes])}, the scores have"
                f" {list(frame.batch)}: they follow the leading ones, so sizes must be equal or 1"
            )
    return tensor.reshape((*tensor.shape[:axes], *(1,) * (rank - axes), *tensor.shape[axes:]))
