"""The arguments of one attention: queries, keys, score, bias, mask and normaliser."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.attention.attend import attend
from regard.attention.kernels.request import ask
from regard.attention.looks import Look
from regard.attention.looks.entries import ChangedMask
from regard.attention.masks import MaskLike, as_mask
from regard.attention.masks.mask import pick
from regard.attention.masks.positions import Band
from regard.attention.normalisers import Normaliser
from regard.attention.scores import Score
from regard.attention.scores.score import PairScore
from regard.attention.shapes import Frame, broadcast
from regard.attention.versions import AFTER
from regard.watching.errors import WatchError
from regard.watching.masks import (
    FlexScore,
    SelectedQueries,
    is_masking,
    looks_back,
    mask_or_bias,
    narrowed,
    with_positions,
)

RowIndex = slice | Iterable[int]
PLAIN = (Tensor, nn.Parameter, nn.Buffer)
OVERRIDES = ("__torch_function__", "__torch_dispatch__")
CHANGED = f"its queries or keys were {AFTER}: pass copy=True to watch, which then keeps copies"


@dataclass(frozen=True, slots=True)
class Selection:
    """The part of a call to keep, and how. By default all of it, by reference."""

    heads: tuple[int, ...] | None = None
    rows: RowIndex | None = None
    device: torch.device | None = None
    dtype: torch.dtype | None = None
    copy: bool = False
    gradients: bool = False
    values: bool = False  # whether the values are kept, too

    @property
    def changes(self) -> bool:
        """Whether other tensors are kept than those that the model computed."""
        options = (self.heads, self.rows, self.device, self.dtype)
        return self.copy or any(each is not None for each in options)


@dataclass(frozen=True, slots=True, eq=False)
class CapturedCall:
    """The arguments of normalise(mask(score(query, key) + bias)).

    `query` is (*batch, heads, queries, width), `key` is (*batch, key_heads, keys, width), where
    key_heads divides heads. `witness` is the last row of weights as the model itself computed it.
    `value` is (*batch, key_heads, keys, d_value); a watch keeps it where `values=True`.
    """

    query: Tensor
    key: Tensor
    score: Score | None = None
    bias: Tensor | None = None
    mask: MaskLike | None = None
    normaliser: Normaliser | Callable[[Tensor], Tensor] | None = None
    witness: Tensor | None = None
    rows: Tensor | None = None  # the numbers of the kept queries; None for all
    kept_places: Tensor | None = None  # the positions of those among the keys
    order: Tensor | None = None  # of a generation: (tokens, entries), the entry that had each token
    value: Tensor | None = None

    def __post_init__(self) -> None:
        for name in ("query", "key", "value", "bias", "mask"):
            tensor = getattr(self, name)
            if isinstance(tensor, Tensor):
                read = plain(name, tensor)
                read = read if read.ndim > 1 else torch.atleast_2d(read)
                if read is not tensor:
                    object.__setattr__(self, name, read)

    def captured(self) -> CapturedCall:
        return self

    def tensors(self) -> list[Tensor]:
        values = [getattr(self, field.name) for field in fields(self)]
        return [each for each in values if isinstance(each, Tensor)]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the look: with the batch axes that only the mask or the bias has."""
        frame, mask = self._frame(), self.mask
        front = frame.batch
        if mask is not None and not isinstance(mask, Tensor | Band):
            row, column = (torch.arange(min(1, count), device=frame.device) for count in frame[1:3])
            mask = as_mask(mask).window(row, column, frame)
        for plane in (mask, self.bias):
            if isinstance(plane, Tensor):
                front = broadcast(front, tuple(plane.shape[:-2]))
        return (*front, frame.queries, frame.keys)

    def _frame(self) -> Frame:
        """The batch axes of queries and keys, and how many of each there are."""
        query, key = self.query, self.key
        front = tuple(query.shape[:-2])
        if query.ndim == 2 or key.ndim != query.ndim:
            front = broadcast(front, tuple(key.shape[:-2]))
        return Frame(front, query.shape[-2], key.shape[-2], query.device)

    def selected(self, selection: Selection) -> CapturedCall:
        """The part of the call to keep."""
        call = self if selection.values else replace(self, value=None)
        if not selection.gradients:  # no operator runs for tensors without a graph
            call = call._mapped(lambda tensor: tensor.detach() if tensor.requires_grad else tensor)
        if selection.heads is not None:
            call = call._of_heads(selection.heads)
        if selection.rows is not None:
            call = call._of_rows(selection.rows)
        if not selection.changes:
            return call
        if selection.dtype is not None:
            query, key = call.query.to(selection.dtype), call.key.to(selection.dtype)
            value = None if call.value is None else call.value.to(selection.dtype)
            call = replace(call, query=query, key=key, value=value)
        call = call._mapped(lambda tensor: tensor.to(selection.device))
        return call._mapped(torch.clone) if selection.copy else call

    def look(self) -> Look:
        """The look at this call. The weights are not computed yet."""
        return Look(ask(**self._arguments()))

    def reading(self) -> Tensor:
        """What each head reads, (*batch, heads, queries, d_value).

        Raises:
            WatchError: the values were not kept.
        """
        arguments = self._arguments()
        reading: Tensor = attend(value=self.values().to(arguments["query"]), **arguments)
        return reading

    def values(self) -> Tensor:
        """The values of each head, (*batch, heads, keys, d_value).

        Raises:
            WatchError: they were not kept.
        """
        if self.value is None:
            raise WatchError("its values were not kept: pass values=True to watch")
        return self._repeated(self.value[..., : self.key.shape[-2], :])

    def _repeated(self, keys: Tensor) -> Tensor:
        """Keys or values of fewer heads than the queries, repeated for each of these."""
        heads, key_heads = (x.shape[-3] if x.ndim > 2 else 1 for x in (self.query, keys))
        if heads == key_heads or key_heads == 1:
            return keys
        return keys.repeat_interleave(heads // key_heads, -3)

    def _arguments(self) -> dict[str, Any]:
        """The arguments of `regard.look`."""
        query, key, score = self.query, self._repeated(self.key), self.score
        joint = torch.promote_types(query.dtype, key.dtype)
        joint = torch.float32 if joint.itemsize == 1 else joint  # of float8 torch has no products
        query, key = query.to(joint), key.to(joint)
        if isinstance(getattr(score, "score", score), FlexScore):
            query, key = with_positions(query, self.rows), with_positions(key)
        mask, bias = self.mask, self.bias
        if isinstance(mask, Tensor):
            mask = narrowed(mask)
        if bias is not None:
            bias_mask, bias = mask_or_bias(bias)
            if bias_mask is not None:
                mask = bias_mask if mask is None else as_mask(mask) & bias_mask
        if (front := self.shape[:-2]) != self._frame().batch:
            query = query.expand(*front, *query.shape[-2:])  # the mask may have become one for all
        options = {"score": score, "bias": bias, "mask": mask, "normaliser": self.normaliser}
        return {"query": query, "key": key, **options}

    def readable(self, rows: Tensor) -> Tensor:
        """Which keys these queries may read, of shape (*batch or 1, rows, keys)."""
        frame, device = self._frame(), self.query.device
        readable = torch.ones(len(rows), frame.keys, dtype=torch.bool, device=device)
        if self.mask is not None:
            columns = torch.arange(frame.keys, device=device)
            readable = readable & as_mask(self.mask).window(rows, columns, frame)
        if self.bias is not None:
            readable = readable & ~is_masking(_of_queries(self.bias, rows))
        return readable

    def looks_back(self) -> bool:
        """Whether the mask or the bias hides all later keys from the queries."""
        (_, queries, keys, _), mask, bias = self._frame(), self.mask, self.bias
        if mask is not None and looks_back(mask, queries, keys):
            return True
        varies = bias is not None and bias.ndim > 1 and bias.shape[-2] > 1
        return bias is not None and varies and looks_back(~is_masking(bias), queries, keys)

    def places(self) -> Tensor:
        """The position of each query among the keys, if both are tokens of one sequence.

        If a mask hides later keys, the position is the last key that the query may read, because a
        cache may end with keys that are not written yet. Otherwise the last query is at the last key.
        """
        if self.kept_places is not None:
            return self.kept_places
        _, queries, keys, _ = self._frame()
        positions = torch.arange(queries)
        if keys <= queries or not queries or (self.mask is None and self.bias is None):
            return positions + max(0, keys - queries)
        ends = torch.tensor([0, queries - 1], device=self.query.device)
        readable = self.readable(ends).reshape(-1, 2, keys).any(0)
        lowest, highest = (keys - 1 - readable.flip(-1).int().argmax(-1)).tolist()
        masked = bool(readable.any(-1).all()) and highest - lowest == queries - 1
        return positions + (lowest if masked else keys - queries)

    def _mapped(self, change: Callable[[Tensor], Tensor]) -> CapturedCall:
        changes: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Tensor) and field.name not in ("rows", "kept_places", "order"):
                changes[field.name] = change(value)
        return replace(self, **changes)

    def _of_heads(self, heads: tuple[int, ...]) -> CapturedCall:
        if self.query.ndim < 4:
            raise WatchError(f"its queries have shape {list(self.query.shape)}, no axis of heads")
        count, key_heads = self.query.shape[-3], self.key.shape[-3]
        if not all(-count <= head < count for head in heads):
            raise WatchError(f"it has {count} heads, not those asked for: {list(heads)}")
        numbers = torch.tensor([head % count for head in heads], device=self.query.device)

        def of_numbers(plane: Tensor) -> Tensor:
            if plane.ndim > 2 and plane.shape[-3] == count:
                return plane.index_select(-3, numbers.to(plane.device))
            return plane

        def of_key_numbers(plane: Tensor) -> Tensor:
            return plane if key_heads == 1 else plane.index_select(-3, numbers * key_heads // count)

        mask, score = self.mask, self.score
        if score is not None and not (isinstance(score, PairScore) and score.alike_for_heads):
            score = ScoreOfHeads(score, numbers, count)
        if isinstance(mask, Tensor):
            mask = of_numbers(mask)
        elif mask is not None and not isinstance(mask, Band):
            mask = ChangedMask(as_mask(mask), self._frame(), of_numbers)
        choose = getattr(self.normaliser, "of_heads", None)
        return replace(
            self,
            query=self.query.index_select(-3, numbers),
            key=of_key_numbers(self.key),
            value=None if self.value is None else of_key_numbers(self.value),
            score=score,
            bias=None if self.bias is None else of_numbers(self.bias),
            mask=mask,
            normaliser=self.normaliser if choose is None else choose(numbers),
            witness=None if self.witness is None else of_numbers(self.witness),
        )

    def _of_rows(self, rows: RowIndex) -> CapturedCall:
        count = self.query.shape[-2]
        numbers = torch.tensor(row_numbers(rows, count), dtype=torch.long)
        device_numbers = numbers.to(self.query.device)
        mask = self.mask
        if isinstance(mask, Tensor):
            mask = _of_queries(mask, device_numbers)
        elif mask is not None:
            mask = SelectedQueries(as_mask(mask), device_numbers, count)
        return replace(
            self,
            query=self.query.index_select(-2, device_numbers),
            mask=mask,
            bias=None if self.bias is None else _of_queries(self.bias, device_numbers),
            witness=None,
            rows=numbers,
            kept_places=self.places()[numbers],
        )


def row_numbers(rows: RowIndex | None, count: int) -> list[int]:
    """The numbers of these of `count` queries; those outside are left out."""
    if rows is None or isinstance(rows, slice):
        return list(range(count)[slice(None) if rows is None else rows])
    return [i % count for i in rows if -count <= i < count]


@dataclass(frozen=True, eq=False)
class DeferredCall:
    """A call whose queries and keys are computed later, and the arguments they are computed from."""

    make: Callable[..., CapturedCall]
    arguments: dict[str, Any]
    crossing: bool = False  # whether the keys come from another sequence
    within: str = ""  # the submodule that this attention belongs to

    def __post_init__(self) -> None:
        for name, value in self.arguments.items():
            if isinstance(value, Tensor) and not value.is_nested:
                check(name, value)

    def tensors(self) -> list[Tensor]:
        return [each for each in self.arguments.values() if isinstance(each, Tensor)]

    def selected(self, selection: Selection) -> Captured:
        """The part of the call to keep: computed now, where it is other tensors than the model's."""
        if selection.changes:
            return self.captured().selected(selection)
        return self if selection.gradients else self._detached()

    def _detached(self) -> DeferredCall:
        """The same call without gradients. Parameters are not detached, so no operator runs for them."""
        detached = {
            name: value.detach()
            for name, value in self.arguments.items()
            if isinstance(value, Tensor) and value.grad_fn
        }
        return replace(self, arguments=self.arguments | detached) if detached else self

    def captured(self) -> CapturedCall:
        return self.make(**self.arguments)


Captured = CapturedCall | DeferredCall


class Description(NamedTuple):
    """The numbers of a call that tell its kind."""

    shape: tuple[int, ...]
    hides_later_keys: bool
    differs: bool  # whether the numbers of queries and keys do, where all queries were kept

    @classmethod
    def of(cls, call: CapturedCall) -> Description:
        shape = call.shape
        differs = call.rows is None and shape[-2] != shape[-1]
        return cls(shape, call.looks_back(), differs)


class RecordedCall:
    """One call, captured or deferred. It notices when its tensors were changed in place."""

    tokens = 1

    def __init__(self, call: Captured, selection: Selection) -> None:
        self.call, self._gradients = call.selected(selection), selection.gradients
        self._versions = [
            (each, each._version) for each in self.call.tensors() if not each.is_inference()
        ]
        self._description: Description | None = None

    def tensors(self) -> list[Tensor]:
        return self.call.tensors()

    def captured(self) -> CapturedCall:
        """The captured call, computed if it was deferred.

        Raises:
            WatchError: its tensors were changed in place since.
        """
        if any(tensor._version != version for tensor, version in self._versions):
            raise WatchError(CHANGED)
        return self._computed()

    def describe(self) -> Description:
        """The description, which is the same if keys were overwritten since."""
        if self._description is None:
            self._computed()
        assert self._description is not None
        return self._description

    @property
    def shape(self) -> tuple[int, ...]:
        return self.describe().shape

    def _computed(self) -> CapturedCall:
        with torch.set_grad_enabled(self._gradients and torch.is_grad_enabled()):
            call = self.call.captured()
        if self._description is None:
            self._description = Description.of(call)
        return call


def plain(name: str, tensor: Tensor) -> Tensor:
    """A tensor of torch's own class, with the same memory.

    Raises:
        WatchError: it has no numbers, or its class computes in its own way.
    """
    check(name, tensor)
    return tensor if type(tensor) in PLAIN else tensor.as_subclass(Tensor)


def check(name: str, tensor: Tensor) -> None:
    """Raise WatchError if the numbers of a tensor cannot be read."""
    if reason := objection(tensor):
        raise WatchError(f"its {name} is {reason}")


def objection(tensor: Tensor) -> str | None:
    """Why the numbers of a tensor cannot be read; None if they can.

    >>> objection(torch.ones(2, device="meta"))
    'a tensor of meta, which holds no numbers'
    """
    if tensor.is_nested:
        return "a nested tensor: pass a padded one and a mask"
    kind = type(tensor)
    subclasses = (each for each in kind.__mro__[: kind.__mro__.index(Tensor)])
    if any(name in vars(each) for each in subclasses for name in OVERRIDES if each not in PLAIN):
        return f"a {kind.__name__}, a tensor whose class computes in its own way"
    if tensor.layout is not torch.strided:
        return f"a tensor of layout {tensor.layout}: pass its to_dense()"
    if tensor.is_quantized:
        return "a quantized tensor: pass its dequantize()"
    if tensor.numel() and not tensor.data_ptr():
        place = tensor.device if tensor.is_meta else "a transform"
        return f"a tensor of {place}, which holds no numbers"
    return None


def _of_queries(plane: Tensor, rows: Tensor) -> Tensor:
    return pick(plane, -2, rows) if plane.ndim > 1 else plane


@dataclass(frozen=True)
class ScoreOfHeads:
    """A score of all heads of which some are kept. The others are computed from the first of these."""

    score: Score
    heads: Tensor
    count: int

    def __call__(self, query: Tensor, key: Tensor, /) -> Tensor:
        heads = self.heads.to(query.device)
        places = torch.arange(len(heads), device=query.device)
        among = heads.new_zeros(self.count).index_copy(0, heads, places)
        scores = self.score(query.index_select(-3, among), pick(key, -3, among))
        return scores.index_select(-3, heads)
