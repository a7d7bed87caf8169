"""The arguments of an attention, checked once, as every kernel takes them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from regard.attention.masks import Mask, MaskLike, as_mask, causal
from regard.attention.masks.layout import Layout, lay
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
from regard.loops.availability import transformed

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
    _layout: Layout | None = field(default=None, init=False, repr=False)
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
    def is_checked(self) -> bool:
        """Whether NaN and infinity are kept out of the gradients: on a CPU, and not when compiling."""
        masked = self.is_masked and torch.is_grad_enabled()
        return masked and self.query.is_cpu and not transformed()

    @property
    def has_bias(self) -> bool:
        return self.bias is not None or self.bias_function is not None

    @property
    def trains_bias(self) -> bool:
        """Whether the bias has gradients."""
        if self.bias_function is None:
            return self.bias is not None and self.bias.requires_grad
        return self._corner().requires_grad

    def _corner(self) -> Tensor:
        """The bias of one pair, for its batch axes and gradients; a function may not take empty tensors."""
        sizes = (min(1, n) for n in (self.queries, self.keys))
        return self.bias_between(*(torch.arange(n, device=self.frame.device) for n in sizes))

    def bias_between(self, rows: Tensor, columns: Tensor) -> Tensor:
        """The numbers of the bias function, for some queries and some keys."""
        assert self.bias_function is not None
        bias = self.bias_function(rows.unsqueeze(-1), columns.unsqueeze(-2))
        check_tensor("bias(query, key)", bias)
        check_device("bias", bias, self.frame.device)
        batch, _, _, device = self.frame
        return _plane("bias", bias, Frame(batch, rows.shape[0], columns.shape[0], device))

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

    @property
    def layout(self) -> Layout | None:
        """The mask over these scores, where it is a rule."""
        if self._layout is None and isinstance(self.mask, Mask):
            self._layout = lay(self.mask, self.frame, transformed())
        return self._layout

    def _window(self, rows: Tensor | None, columns: Tensor | None) -> Tensor | None:
        if rows is None and columns is None and self.layout is not None and not self.has_bias:
            return self.layout.dense()
        readable = None
        device = self.frame.device
        at = torch.arange(self.queries, device=device) if rows is None else rows
        of = torch.arange(self.keys, device=device) if columns is None else columns
        if isinstance(self.mask, Tensor):
            readable = _picked(self.mask, rows, columns)
        elif self.mask is not None:
            readable = self.mask.window(at, of, self.frame)
        if self.has_bias:
            bias = self.bias_between(at, of) if self.bias is None else self.bias
            finite = (bias if self.bias is None else _picked(bias, rows, columns)) != -torch.inf
            readable = finite if readable is None else readable & finite
        return readable

    def batch(self) -> Shape:
        """The batch axes of the weights, those of the mask and bias included."""
        batch = self.frame.batch if self.layout is None else self.layout.batch()
        bias = self.bias
        if self.bias_function is not None:
            bias = self._corner()
        for plane in (self.mask, bias):
            if isinstance(plane, Tensor) and plane.ndim > 2:
                batch = broadcast(batch, tuple(plane.shape[:-2]))
        return batch


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
    function = None if bias is None else function_of(bias)
    bias_tensor: Any = bias if function is None else None
    check_tensors(query, key, value, bias_tensor)
    check_types(query, key, value)
    is_traced = transformed()
    if dropout is True or not 0 <= dropout <= 1:
        raise ValueError(f"dropout is {dropout}: pass a rate from 0 to 1")
    shapes = query.shape, key.shape, None if value is None else value.shape
    frame, is_regular = (_framed if is_traced else framed)(*shapes, query.device)
    rule = None if mask is None else _mask(mask, frame)
    request = Request(
        query,
        key,
        DEFAULT_SCORE if score is None else as_score(score, query.shape[-1], key.shape[-1]),
        None if bias_tensor is None else _plane("bias", bias_tensor, frame),
        rule,
        DEFAULT_NORMALISER if normaliser is None else as_normaliser(normaliser),
        dropout,
        frame,
        function,
        is_traced=is_traced,
    )
    request.is_regular = is_regular
    if isinstance(rule, Mask):
        request._layout = lay(rule, frame, is_traced)
    return request


def _framed(
    query: Shape, key: Shape, value: Shape | None, device: torch.device
) -> tuple[Frame, bool]:
    """The scores' frame, and whether all tensors have its batch axes and no axis is empty."""
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
    return Frame(batch, queries, keys, device), is_regular


framed = lru_cache(maxsize=4096)(_framed)


def check_tensors(query: Any, key: Any, value: Any, bias: Any) -> None:
    """Refuse what is no tensor, and tensors on several devices."""
    check_tensor("query", query)
    tensors = (key,) if value is None else (key, value)
    if bias is None and all(isinstance(t, Tensor) and t.device == query.device for t in tensors):
        return
    for name, tensor in (("key", key), ("value", value), ("bias", bias)):
        if tensor is not None:
            check_tensor(name, tensor)
            check_device(name, tensor, query.device)


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


def _mask(mask: MaskLike, frame: Frame) -> Mask | Tensor:
    if isinstance(mask, str):
        check_name(mask, frame.queries, frame.keys)
        return CAUSAL
    if isinstance(mask, Given):
        mask = mask.tensor
    if isinstance(mask, Tensor):
        check_boolean(mask)
        check_device("mask", mask, frame.device)
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
