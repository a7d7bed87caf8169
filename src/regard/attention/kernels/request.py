"""The arguments of an attention, checked once, as every kernel takes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.attention.masks import Mask, MaskLike, as_mask, causal
from regard.attention.masks.layout import Layout, lay
from regard.attention.masks.mask import Given, check_boolean, check_name, pick
from regard.attention.normalisers import Normaliser, NormaliserLike, Softmax, as_normaliser
from regard.attention.positions.biases import BiasFunction, BiasLike, function_of
from regard.attention.scores import PairScore, ScaledDot, Score, ScoreLike, as_score
from regard.attention.scores.score import pairwise
from regard.attention.shapes import (
    Frame,
    Shape,
    ShapeError,
    broadcast,
    check_device,
    check_plane,
    check_rank,
    check_value,
)
from regard.attention.versions import Versions
from regard.loops.availability import transformed

LARGE = 1 << 26  # numbers of the whole from which blocks are worth computing twice
DEFAULT_SCORE, DEFAULT_NORMALISER = ScaledDot(), Softmax()
CAUSAL = causal(align="start")


@dataclass(slots=True, eq=False)
class Request:
    """weights = normalise(mask(score(query, key) + bias)); dropout is on the weights."""

    query: Tensor
    key: Tensor
    score: Score
    bias: Tensor | None
    mask: Mask | Tensor | None
    normaliser: Normaliser
    dropout: float
    frame: Frame
    bias_function: BiasFunction | None = None  # of positions, in place of a bias
    versions: Versions | None = None  # where it is read again later: what must not change
    is_traced: bool = False  # by a compiler or transform, so that numbers cannot be read
    # Known of the tensors that were passed; of a request with others in their place, nothing is.
    is_regular: bool = field(
        default=False, init=False, repr=False
    )  # all batch axes are alike, no axis is empty
    # A softmax over scaled dot products of such tensors, as torch's fused attention computes it.
    is_plain: bool = field(default=False, init=False, repr=False)
    # The backward pass keeps NaN in masked keys out of the gradients, so that nothing else need do so.
    checks_gradients: bool = field(default=False, init=False, repr=False)
    _size: int | None = field(default=None, init=False, repr=False)
    _layout: Layout | None = field(default=None, init=False, repr=False)
    _readable: Tensor | None = field(default=None, init=False, repr=False)

    @property
    def queries(self) -> int:
        return self.frame.queries

    @property
    def keys(self) -> int:
        return self.frame.keys

    @property
    def pairs(self) -> int:
        """How many scores there are, of all batch entries."""
        return prod(self.frame.batch) * self.frame.queries * self.frame.keys

    @property
    def row_size(self) -> int:
        """The numbers that one query of every batch entry takes: scores, or the layer before them."""
        return prod(self.batch()) * self.frame.keys * pair_width(self)

    @property
    def size(self) -> int:
        """The numbers that all queries take."""
        if self._size is None:
            self._size = self.frame.queries * self.row_size
        return self._size

    @property
    def is_large(self) -> bool:
        """Whether blocks of the queries are worth computing twice."""
        return self.size > LARGE

    @property
    def is_masked(self) -> bool:
        """Whether some keys may be forbidden: by a mask, or by a bias of -inf."""
        return self.mask is not None or self.bias is not None or self.bias_function is not None

    @property
    def is_checked(self) -> bool:
        """Whether NaN and infinity are kept out of the gradients: on a CPU, and not when compiling."""
        masked = self.is_masked and torch.is_grad_enabled()
        return masked and self.query.is_cpu and not transformed()

    def has_vectors(self, query: Tensor, key: Tensor) -> bool:
        """Whether vectors are those of the request: with gradients that are finite, nothing before them is spoilt."""
        return query is self.query and key is self.key

    @property
    def has_bias(self) -> bool:
        return self.bias is not None or self.bias_function is not None

    @property
    def trains_bias(self) -> bool:
        """Whether the bias has gradients."""
        if self.bias_function is None:
            return self.bias is not None and self.bias.requires_grad
        return self.corner().requires_grad

    def corner(self) -> Tensor:
        """The bias of one pair, for its batch axes and gradients; a function may not take empty tensors."""
        sizes = (min(1, n) for n in (self.queries, self.keys))
        return self.bias_between(*(torch.arange(n, device=self.frame.device) for n in sizes))

    def bias_between(self, rows: Tensor, columns: Tensor) -> Tensor:
        """The numbers of the bias function, for some queries and some keys."""
        assert self.bias_function is not None
        bias = self.bias_function(rows.unsqueeze(-1), columns.unsqueeze(-2))
        check_tensor("bias(query, key)", bias)
        check_device("bias", bias.device, self.frame.device)
        batch, _, _, device = self.frame
        return _plane("bias", bias, Frame(batch, rows.shape[0], columns.shape[0], device))

    def bias_of(self, rows: Tensor | None = None, columns: Tensor | None = None) -> Tensor | None:
        """The bias of all queries and keys, or of those at these positions; None where there is none."""
        if self.bias_function is not None:
            return self.bias_between(*self._positions(rows, columns))
        return None if self.bias is None else _picked(self.bias, rows, columns)

    def with_bias(self, change: Callable[[Tensor], Tensor]) -> Request:
        """The same request with a changed bias; of a function, what it returns is changed."""
        function = self.bias_function
        if function is None:
            return self if self.bias is None else replace(self, bias=change(self.bias))

        def changed_function(rows: Tensor, columns: Tensor) -> Tensor:
            return change(function(rows, columns))

        return replace(self, bias_function=changed_function)

    def written(self) -> Request:
        """The same request with the bias of all queries and keys, for kernels that take no function."""
        if self.bias_function is None:
            return self
        return replace(self, bias=self.bias_of(), bias_function=None)

    def readable(
        self,
        rows: Tensor | None = None,
        columns: Tensor | None = None,
        bias: Tensor | None = None,
    ) -> Tensor | None:
        """Which keys may be read, by the mask and by a bias of -inf; None where everything may.

        Broadcasts to (*batch, queries or rows, keys or columns). `bias` is that of these queries and keys, where
        its numbers are there already: a function is not called again.
        """
        if not self.is_masked:
            return None
        if rows is not None or columns is not None or self.bias_function is not None:
            return self._window(rows, columns, bias)
        if self._readable is None:
            self._readable = self._window(None, None, bias)
        return self._readable

    def section(
        self,
        rows: Tensor,
        columns: Tensor,
        sides: tuple[Tensor, Tensor, Tensor | None] | None = None,
    ) -> Request:
        """The request of some queries and some keys, with a mask and a bias of these alone, as tensors.

        `sides` are its query, key and bias, where they are cut already.
        """
        if sides is None:
            query, key = pick(self.query, -2, rows), pick(self.key, -2, columns)
            sides = query, key, self.bias_of(rows, columns)
        query, key, bias = sides
        if self.bias_function is not None:
            bias = self.bias_between(rows, columns)
        return replace(
            self,
            query=query,
            key=key,
            bias=bias,
            bias_function=None,
            mask=self.readable(rows, columns, bias),
            frame=self.frame._replace(queries=len(rows), keys=len(columns)),
        )

    def mask_tensors(self) -> list[Tensor] | None:
        """The tensors that the mask reads; None where a function of the caller's may read others."""
        if self.mask is None:
            return []
        return [self.mask] if isinstance(self.mask, Tensor) else self.mask.tensors()

    @property
    def layout(self) -> Layout | None:
        """The mask over these scores, where it is a rule."""
        if self.mask is None:
            return None
        if self._layout is None and isinstance(self.mask, Mask):
            self._layout = lay(self.mask, self.frame, transformed())
        return self._layout

    def _positions(self, rows: Tensor | None, columns: Tensor | None) -> tuple[Tensor, Tensor]:
        device = self.frame.device
        at = torch.arange(self.queries, device=device) if rows is None else rows
        return at, torch.arange(self.keys, device=device) if columns is None else columns

    def _window(
        self, rows: Tensor | None, columns: Tensor | None, bias: Tensor | None
    ) -> Tensor | None:
        if rows is None and columns is None and self.layout is not None and not self.has_bias:
            return self.layout.dense()
        readable = None
        if isinstance(self.mask, Tensor):
            readable = _picked(self.mask, rows, columns)
        elif self.mask is not None:
            readable = self.mask.window(*self._positions(rows, columns), self.frame)
        bias = self.bias_of(rows, columns) if bias is None else bias
        if bias is not None:
            finite = bias != -torch.inf
            readable = finite if readable is None else readable & finite
        return readable

    def batch(self) -> Shape:
        """The batch axes of the weights, those of the mask and bias included."""
        batch = self.frame.batch if self.layout is None else self.layout.batch
        bias = self.bias
        if self.bias_function is not None:
            with torch.no_grad():
                bias = self.corner()
        for plane in (self.mask, bias):
            if isinstance(plane, Tensor) and plane.ndim > 2:
                batch = broadcast(batch, tuple(plane.shape[:-2]))
        return batch


def pair_width(request: Request) -> int:
    """The numbers that a pair takes: scores, weights and those between them, or a hidden layer.

    A caller's own score counts as much as its vectors are wide.
    """
    score = pairwise(request.score)
    if score is None:
        return max(request.query.shape[-1], request.key.shape[-1])
    return max(4, score.pair_width)


def _picked(plane: Tensor, rows: Tensor | None, columns: Tensor | None) -> Tensor:
    if rows is not None:
        plane = pick(plane, -2, rows)
    return plane if columns is None else pick(plane, -1, columns)


def ask(
    query: Tensor,
    key: Tensor,
    value: Tensor | None = None,
    *,
    score: ScoreLike | None = None,
    bias: BiasLike | None = None,
    mask: MaskLike | None = None,
    normaliser: NormaliserLike | None = None,
    dropout: float = 0.0,
) -> Request:
    """Check what was passed, and fill in the defaults."""
    if not (isinstance(query, Tensor) and isinstance(key, Tensor) and isinstance(value, Tensor)):
        check_tensors(query, key, value)
    if dropout is True or not 0 <= dropout <= 1:
        raise ValueError(f"dropout is {dropout}: pass a rate from 0 to 1")
    check_places(query, key, value)
    is_traced = transformed()
    value_shape = None if value is None else value.shape
    shapes = query.shape, key.shape, value_shape, query.device
    sides = (_sides if is_traced else sides_of)(*shapes)
    scorer = DEFAULT_SCORE if score is None else _score(score, query, key)
    if score is not None and isinstance(scorer, PairScore) and (heads := scorer.head_axes):
        sides = _over_heads(heads, sides)
        query = query.expand(*sides.frame.batch, *query.shape[-2:])
    frame = sides.frame
    request = Request(
        query,
        key,
        scorer,
        None,
        None,
        DEFAULT_NORMALISER if normaliser is None else as_normaliser(normaliser),
        dropout,
        frame,
        is_traced=is_traced,
    )
    request.is_regular = sides.is_regular
    request.is_plain = sides.is_plain and score is None and normaliser is None
    if bias is not None:
        request.bias_function = function_of(bias)
        if request.bias_function is None:
            request.bias = _bias(bias, frame)
    if mask is not None:
        rule = request.mask = rule_of(mask, frame)
        if not isinstance(rule, Tensor):
            request._layout = lay(rule, frame, is_traced)
    return request


class Sides(NamedTuple):
    """The shapes of query, key and value, checked once for all calls with the same."""

    frame: Frame
    is_regular: bool  # all have the same batch axes, and no axis is empty
    is_plain: bool  # moreover queries and keys have one width
    is_fusible: bool  # regular, and with the batch axes of torch's fused attention, on a processor
    has_heads: bool  # two batch axes
    pairs: int  # scores of all batch entries


def _over_heads(heads: Shape, sides: Sides) -> Sides:
    """The sides with the heads of the score, over which an axis of size 1 broadcasts."""
    batch = sides.frame.batch
    if batch[-len(heads) :] == heads:
        return sides
    try:
        joint = broadcast(batch, heads)
    except ShapeError:
        raise ShapeError(
            f"the score was made with heads={list(heads)}, which do not broadcast with the batch axes"
            f" {list(batch)} of query and key: on each axis, counted from the right, sizes must be equal or 1"
        ) from None
    is_regular = sides.is_regular and joint == batch
    return sides._replace(frame=sides.frame._replace(batch=joint), is_regular=is_regular)


def _sides(query: Shape, key: Shape, value: Shape | None, device: torch.device) -> Sides:
    check_rank("query", query)
    check_rank("key", key)
    *queries_batch, queries, _ = query
    *keys_batch, keys, _ = key
    batch = tuple(queries_batch)
    if queries_batch != keys_batch:
        batch = broadcast(batch, tuple(keys_batch))
    if value is not None:
        check_value(keys, value)
        if value[:-2] != batch:
            batch = broadcast(batch, tuple(value[:-2]))
    shapes = [shape for shape in (query, key, value) if shape is not None]
    is_regular = all(shape[:-2] == batch and 0 not in shape for shape in shapes)
    is_plain = is_regular and query[-1] == key[-1]
    is_fusible = is_regular and device.type == "cpu" and len(batch) in (1, 2)
    frame, pairs = Frame(batch, queries, keys, device), prod(batch) * queries * keys
    return Sides(frame, is_regular, is_plain, is_fusible, len(batch) == 2, pairs)


sides_of = lru_cache(maxsize=4096)(_sides)


def check_tensors(query: Any, key: Any, value: Any) -> None:
    """Refuse what is no tensor."""
    check_tensor("query", query)
    check_tensor("key", key)
    if value is not None:
        check_tensor("value", value)


def check_tensor(name: str, argument: Any) -> None:
    """Refuse numbers, lists and arrays of other libraries."""
    if not isinstance(argument, Tensor):
        raise TypeError(
            f"{name} is of type {type(argument).__name__}: pass a tensor, torch.as_tensor({name})"
        )


def name_of(component: object) -> str:
    """The name of a score or normaliser, for messages."""
    return getattr(component, "__name__", type(component).__name__)


def check_places(query: Tensor, key: Tensor, value: Tensor | None) -> None:
    """Refuse several devices, integers, and mixed precisions outside of autocast, which settles those itself."""
    device = query.device
    if key.device != device or (value is not None and value.device != device):
        check_device("key", key.device, device)
        check_device("value", (key if value is None else value).device, device)
    same = query.dtype == key.dtype and (value is None or query.dtype == value.dtype)
    if same and query.is_floating_point():
        return
    types = {query.dtype, key.dtype, query.dtype if value is None else value.dtype}
    if not all(dtype.is_floating_point for dtype in types):
        raise TypeError(f"query, key and value hold {_names(types)}: pass floating point tensors")
    if len(types) > 1 and not torch.is_autocast_enabled(query.device.type):
        raise TypeError(f"query, key and value hold {_names(types)}: pass one dtype for all three")


def _names(types: set[torch.dtype]) -> str:
    return ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in types))


def _score(score: ScoreLike, query: Tensor, key: Tensor) -> Score:
    if isinstance(score, PairScore):
        return score
    return as_score(score, query.shape[-1], key.shape[-1])


def _bias(bias: Any, frame: Frame) -> Tensor:
    check_tensor("bias", bias)
    check_device("bias", bias.device, frame.device)
    return _plane("bias", bias, frame)


def rule_of(mask: MaskLike, frame: Frame) -> Mask | Tensor:
    """The mask that was passed, checked: a rule, or a tensor that broadcasts over the scores."""
    if isinstance(mask, str):
        check_name(mask, frame.queries, frame.keys)
        return CAUSAL
    if type(mask) is Given:
        mask = mask.tensor
    if isinstance(mask, Tensor):
        check_boolean(mask)
        check_device("mask", mask.device, frame.device)
        return _plane("mask", mask, frame)
    return mask if isinstance(mask, Mask) else as_mask(mask)


def _plane(name: str, plane: Tensor, frame: Frame) -> Tensor:
    """The mask or bias with at least two axes, known to broadcast over the scores."""
    if name == "bias" and not plane.dtype.is_floating_point:
        raise TypeError(f"bias holds {_names({plane.dtype})}: pass numbers; booleans are a mask")
    if type(plane) is not Tensor and isinstance(plane, causal_bias()):
        raise TypeError(
            f"{name} is a CausalBias of torch, which holds no numbers: "
            "pass mask=regard.masks.causal(align=...)"
        )
    check_plane(name, plane.shape, frame.queries, frame.keys)
    if plane.ndim < 2:
        return plane.reshape(1, -1)
    if plane.ndim > 2:
        broadcast(frame.batch, plane.shape[:-2])
    return plane


def causal_bias() -> type[Tensor]:
    """The class of torch's causal masks."""
    from torch.nn.attention.bias import CausalBias  # 2 s, and no plain tensor needs it

    return CausalBias
