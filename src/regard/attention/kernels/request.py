"""The arguments of an attention, checked once, as every kernel takes them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from regard.attention.masks import Mask, MaskLike, as_mask, causal
from regard.attention.masks.mask import Given, check_boolean, check_name, pick
from regard.attention.normalisers import Normaliser, NormaliserLike, Softmax, as_normaliser
from regard.attention.positions.biases import BiasFunction, BiasLike, function_of
from regard.attention.scores import ScaledDot, Score, ScoreLike, as_score
from regard.attention.shapes import (
    Frame,
    Shape,
    broadcast,
    check_device,
    check_plane,
    check_rank,
    check_value,
)
from regard.attention.versions import Versions

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
    _readable: Tensor | None = field(default=None, init=False, repr=False)

    @property
    def queries(self) -> int:
        return self.frame.queries

    @property
    def keys(self) -> int:
        return self.frame.keys

    @property
    def is_masked(self) -> bool:
        """Whether some keys may be forbidden: by a mask, or by a bias of -inf."""
        return self.mask is not None or self.has_bias

    @property
    def has_bias(self) -> bool:
        return self.bias is not None or self.bias_function is not None

    @property
    def trains_bias(self) -> bool:
        """Whether the bias has gradients."""
        if self.bias_function is None:
            return self.bias is not None and self.bias.requires_grad
        nowhere = torch.arange(0, device=self.frame.device)
        return self.bias_between(nowhere, nowhere).requires_grad

    def bias_between(self, rows: Tensor, columns: Tensor) -> Tensor:
        """The numbers of the bias function, for some queries and some keys."""
        assert self.bias_function is not None
        bias = self.bias_function(rows.unsqueeze(-1), columns.unsqueeze(-2))
        check_tensor("bias(query, key)", bias)
        check_device("bias", bias, self.frame.device)
        return _plane("bias", bias, self.frame.batch, rows.shape[0], columns.shape[0])

    def written(self) -> Request:
        """The same request with the bias of all queries and keys, for kernels that take no function."""
        if self.bias_function is None:
            return self
        sides = (torch.arange(n, device=self.frame.device) for n in (self.queries, self.keys))
        return replace(self, bias=self.bias_between(*sides), bias_function=None)

    def readable(self, rows: Tensor | None = None, columns: Tensor | None = None) -> Tensor | None:
        """Which keys may be read, by the mask and by a bias of -inf; None where everything may.

        Broadcasts to (*batch, queries or rows, keys or columns).
        """
        if not self.is_masked:
            return None
        if rows is not None or columns is not None:
            return self._window(rows, columns)
        if self._readable is None:
            self._readable = self._window(None, None)
        return self._readable

    def mask_tensors(self) -> list[Tensor] | None:
        """The tensors that the mask reads; None where a function of the caller's may read others."""
        if self.mask is None:
            return []
        return [self.mask] if isinstance(self.mask, Tensor) else self.mask.tensors()

    def _window(self, rows: Tensor | None, columns: Tensor | None) -> Tensor | None:
        readable = None
        device = self.frame.device
        at = torch.arange(self.queries, device=device) if rows is None else rows
        of = torch.arange(self.keys, device=device) if columns is None else columns
        if isinstance(self.mask, Tensor):
            readable = _picked(self.mask, rows, columns)
        elif self.mask is not None:
            readable = self.mask.window(at, of, self.frame)
        if self.bias is not None or self.bias_function is not None:
            bias = self.bias_between(at, of) if self.bias is None else self.bias
            finite = (bias if self.bias is None else _picked(bias, rows, columns)) != -torch.inf
            readable = finite if readable is None else readable & finite
        return readable

    def batch(self) -> Shape:
        """The batch axes of the weights, those of the mask and bias included."""
        shapes = [self.frame.batch]
        if self.bias is not None:
            shapes.append(tuple(self.bias.shape[:-2]))
        nowhere = torch.arange(0, device=self.frame.device)
        if self.bias_function is not None:
            shapes.append(tuple(self.bias_between(nowhere, nowhere).shape[:-2]))
        if isinstance(self.mask, Tensor):
            shapes.append(tuple(self.mask.shape[:-2]))
        elif self.mask is not None:
            shapes.append(tuple(self.mask.window(nowhere, nowhere, self.frame).shape[:-2]))
        return broadcast(*shapes)


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
    function = function_of(bias)
    bias_tensor: Any = bias if function is None else None
    check_tensors(query, key=key, value=value, bias=bias_tensor)
    check_rank("query", query.shape)
    check_rank("key", key.shape)
    *front, queries, _ = query.shape
    *own, keys, _ = key.shape
    batch = tuple(front) if front == own else broadcast(tuple(front), tuple(own))
    if value is not None:
        check_value(keys, value.shape)
        if value.shape[:-2] != batch:
            batch = broadcast(batch, tuple(value.shape[:-2]))
    check_types(query, key, value)
    if dropout is True or not 0 <= dropout <= 1:
        raise ValueError(f"dropout is {dropout}: pass a rate from 0 to 1")
    frame = Frame(batch, queries, keys, query.device)
    return Request(
        query=query,
        key=key,
        score=DEFAULT_SCORE if score is None else as_score(score, query.shape[-1], key.shape[-1]),
        bias=None if bias_tensor is None else _plane("bias", bias_tensor, batch, queries, keys),
        mask=_mask(mask, frame),
        normaliser=DEFAULT_NORMALISER if normaliser is None else as_normaliser(normaliser),
        dropout=dropout,
        frame=frame,
        bias_function=function,
    )


def check_tensors(query: Any, **others: Any) -> None:
    """Refuse what is no tensor, and tensors on several devices."""
    for name, each in (("query", query), *others.items()):
        if each is not None:
            check_tensor(name, each)
            check_device(name, each, query.device)


def check_tensor(name: str, each: Any) -> None:
    """Refuse numbers, lists and arrays of other libraries."""
    if not isinstance(each, Tensor):
        raise TypeError(
            f"{name} is of type {type(each).__name__}: pass a tensor, torch.as_tensor({name})"
        )


def name_of(part: object) -> str:
    """The name of a score or normaliser, for messages."""
    return getattr(part, "__name__", type(part).__name__)


def check_types(query: Tensor, key: Tensor, value: Tensor | None) -> None:
    """Refuse integers, and mixed precisions outside of autocast, which settles those itself."""
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


def _mask(mask: MaskLike | None, frame: Frame) -> Mask | Tensor | None:
    if mask is None:
        return None
    if isinstance(mask, str):
        check_name(mask, frame.queries, frame.keys)
        return CAUSAL
    if isinstance(mask, Given):
        mask = mask.tensor
    if isinstance(mask, Tensor):
        check_boolean(mask)
        check_device("mask", mask, frame.device)
        return _plane("mask", mask, frame.batch, frame.queries, frame.keys)
    rule = as_mask(mask)
    rule.check(frame)
    return rule


def _plane(name: str, plane: Tensor, batch: Shape, queries: int, keys: int) -> Tensor:
    """The mask or bias with at least two axes, known to broadcast over the scores."""
    if name == "bias" and not plane.dtype.is_floating_point:
        raise TypeError(f"bias holds {_names({plane.dtype})}: pass numbers; booleans are a mask")
    if type(plane) is not Tensor and isinstance(plane, causal_bias()):
        raise TypeError(
            f"{name} is a CausalBias of torch, which holds no numbers: "
            "pass mask=regard.masks.causal(align=...)"
        )
    check_plane(name, plane.shape, queries, keys)
    if plane.ndim < 2:
        return plane.reshape(1, -1)
    if plane.ndim > 2:
        broadcast(batch, plane.shape[:-2])
    return plane


def causal_bias() -> type[Tensor]:
    """The class of torch's causal masks."""
    from torch.nn.attention.bias import CausalBias  # 2 s, and no plain tensor needs it

    return CausalBias
