"""Additive attention as one function of torch: tensors with broadcast batch axes in, gradients out."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.attention.kernels.additive.requests import OWN, Rules
from regard.attention.kernels.triton import sizes
from regard.attention.kernels.triton.backward import backward
from regard.attention.kernels.triton.bias import bias_gradients
from regard.attention.kernels.triton.forward import forward, join
from regard.attention.kernels.triton.launches import launch_of
from regard.attention.kernels.triton.scores import prepare_features
from regard.attention.kernels.triton.sizes import Tile
from regard.attention.shapes import Frame, Shape, broadcast
from regard.loops.availability import capturing

TOGETHER = 16  # positions of a mark of features beyond the limit, as in scores.py
PREPARED = Tile(TOGETHER, TOGETHER, warps=2)
BIAS = 5  # the place of the bias among the sides


class Readable(NamedTuple):
    """Which keys may be read: spans of keys (2, queries), documents, booleans; each may be missing."""

    spans: Tensor | None = None
    asking: Tensor | None = None
    stored: Tensor | None = None
    mask: Tensor | None = None


def readable_of(rules: Rules, frame: Frame) -> Readable:
    """The rules as the kernels read them."""
    spans = None
    if rules.low is not None and rules.high is not None:
        low, high = torch.broadcast_tensors(rules.low, rules.high)
        spans = torch.stack([low, high], -2).clamp(0, frame.keys).int()
        spans = spans.expand(*spans.shape[:-1], frame.queries)
    return Readable(spans, rules.asking, rules.stored, rules.mask)


@dataclass(frozen=True)
class Scores:
    """How scores become weights; cap 0 is none."""

    factor: float  # 1 / temperature, or scale / temperature
    cap: float = 0.0


class Features(NamedTuple):
    """Twice a side's features and e^ of it, (entries, 2, hidden, length), and marks where they are beyond the limit."""

    doubled: Tensor
    beyond: Tensor

    @property
    def stored(self) -> tuple[int, int]:
        """The sizes with zeros at the ends: of hidden, and of the length."""
        return self.doubled.shape[2], self.doubled.shape[3]


@dataclass(frozen=True)
class Call:
    """Contiguous tensors with one batch axis each; `where` says which entry of each one is read."""

    scores: Scores
    batch: Shape
    where: Tensor
    a: Tensor  # (entries, queries, hidden)
    c: Tensor  # (entries, keys, hidden)
    w: Tensor  # (entries, hidden)
    v: Tensor  # (entries, keys, width)
    spans: Tensor  # (entries, 2, queries); this and the rest are empty where there is none
    bias: Tensor
    mask: Tensor
    asking: Tensor
    stored: Tensor

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        return self.a.shape[1], self.c.shape[1], self.a.shape[2], self.v.shape[2]

    @property
    def entries(self) -> int:
        return len(self.where)

    @property
    def switches(self) -> dict[str, bool]:
        rules = {
            "SPANS": self.spans,
            "DOCUMENTS": self.asking,
            "MASK": self.mask,
            "BIAS": self.bias,
        }
        return {
            **{name: side.numel() > 0 for name, side in rules.items()},
            "CAPPED": self.scores.cap > 0,
        }

    def inputs(self, a: Features, c: Features, v: Tensor) -> tuple[Tensor, ...]:
        """The first tensors of the kernels."""
        w = self.w
        if w.shape[1] < a.stored[0]:
            w = pad(w, (0, 1))
        sides = (a.doubled, c.doubled, w, v, self.spans, self.bias, self.mask, self.asking)
        return (self.where, *sides, self.stored, a.beyond, c.beyond)

    def launch(
        self,
        kernel: Any,
        grid: tuple[int, ...],
        tile: Tile,
        tensors: tuple[Tensor, ...],
        features: tuple[Features, Features],
        **constants: Any,
    ) -> None:
        """Run a kernel over tensors that begin with the inputs."""
        queries, keys, _, width = self.sizes
        (hidden, a_stored), (_, c_stored) = (side.stored for side in features)
        planes = (*_strides(self.bias), *_strides(self.mask))
        numbers = (*planes, queries, keys, hidden, width, a_stored, c_stored, self.entries)
        constants |= {**self.switches, "WIDE": tile.wide}
        launch = launch_of(kernel, grid, tile, self.a.device, numbers, **constants)
        launch(tensors, *numbers, self.scores.factor, self.scores.cap)

    def features(self) -> tuple[Features, Features]:
        """Both sides as the kernels read them."""
        return _prepared(self.a), _prepared(self.c)

    def per_entry(self, tensor: Tensor, side: int) -> Tensor:
        """The entries of a side that the entries of the batch read."""
        return tensor if len(tensor) in (1, self.entries) else tensor[self.where[:, side]]


def _strides(plane: Tensor) -> list[int]:
    """The strides of a mask or bias, 0 along an axis of size 1."""
    if plane.numel() == 0:
        return [0, 0, 0]
    rows, columns = plane.shape[1:]
    return [rows * columns, columns if rows > 1 else 0, 1 if columns > 1 else 0]


def _prepared(features: Tensor) -> Features:
    entries, length, hidden = features.shape
    stored_hidden, stored_length = hidden + hidden % 2, sizes.stored(length)  # channels go in pairs
    doubled = features.new_empty(entries, 2, stored_hidden, stored_length)
    marks = stored_length // TOGETHER
    beyond = torch.empty(entries, marks, dtype=torch.int32, device=features.device)
    lengths = length, hidden, stored_length, stored_hidden
    launch = launch_of(prepare_features, (entries * marks,), PREPARED, features.device, lengths)
    launch((features, doubled, beyond), *lengths)
    return Features(doubled, beyond)


def _channels_first(tensor: Tensor) -> Tensor:
    """(entries, length, width) as (entries, width, stored length), in float32."""
    missing = sizes.stored(tensor.shape[1]) - tensor.shape[1]
    turned = tensor.float().mT
    return (pad(turned, (0, missing)) if missing else turned).contiguous()


def _entries(fronts: tuple[Shape, ...], batch: Shape, device: torch.device) -> Tensor:
    """The entry of each side that each entry of the batch reads, (batch, sides)."""
    where = torch.zeros(prod(batch), len(fronts), dtype=torch.int64, device=device)
    for side, front in enumerate(fronts):
        if prod(front) > 1:
            index = torch.arange(prod(front), device=device).reshape(front)
            where[:, side] = index.expand(batch).reshape(-1)
    return where


_kept_entries = lru_cache(maxsize=64)(_entries)


def _call(
    scores: Scores,
    a: Tensor,
    c: Tensor,
    w: Tensor,
    v: Tensor,
    bias: Tensor | None,
    readable: Readable,
) -> Call:
    sides = _sides(a, c, w, v, bias, readable)
    fronts = tuple(tuple(s.shape[: s.ndim - own]) for s, own in zip(sides, OWN, strict=True))
    batch = broadcast(*fronts)
    # Memory that is written while a graph is captured has no numbers before the graph runs.
    locate: Callable[..., Tensor] = _entries if capturing(a.device) else _kept_entries
    flat = (
        side
        if side.numel() == 0
        else side.reshape(prod(front), *side.shape[len(front) :]).contiguous()
        for side, front in zip(sides, fronts, strict=True)
    )
    return Call(scores, batch, locate(fronts, batch, a.device), *flat)


def _sides(
    a: Tensor, c: Tensor, w: Tensor, v: Tensor, bias: Tensor | None, readable: Readable
) -> tuple[Tensor, ...]:
    """a, c, w, v, spans (2, queries), bias, mask, asking and stored; a missing one is empty."""
    nothing = a.new_empty(1, 0)
    spans, asking, stored, mask = (nothing if side is None else side for side in readable)
    if bias is not None:
        bias = bias.float().masked_fill(bias == -torch.inf, 0.0)
    if mask.dtype == torch.bool:
        mask = mask.contiguous().view(torch.uint8)
    ids = (nothing[0] if side is nothing else side for side in (asking, stored))
    return a, c, w, v, spans, nothing if bias is None else bias, mask, *ids


def _read(call: Call) -> tuple[Tensor, Tensor]:
    """The reading, (entries, queries, width), and the highest score and the total of each query."""
    queries, keys, _, width = call.sizes
    tile, shares = sizes.of_reading(queries, keys, width, call.entries)
    reading = call.v.new_empty(shares * call.entries, queries, width)
    norms = torch.empty(
        shares * call.entries, 2, queries, dtype=torch.float32, device=reading.device
    )
    features = call.features()
    grid = (-(-queries // tile.outer) * call.entries, -(-width // tile.wide), shares)
    tensors = (*call.inputs(*features, call.v), reading, norms)
    call.launch(forward, grid, tile, tensors, features)
    return (reading, norms) if shares == 1 else _join(call, shares, reading, norms)


def _join(call: Call, shares: int, readings: Tensor, norms: Tensor) -> tuple[Tensor, Tensor]:
    """The reading and the norms of all keys, from those of their shares."""
    queries, _, _, width = call.sizes
    tile = Tile(TOGETHER, TOGETHER, warps=4, wide=sizes.stretch(width))
    reading, joint_norms = (
        side.new_empty(call.entries, *side.shape[1:]) for side in (readings, norms)
    )
    grid = (-(-call.entries * queries // tile.outer), -(-width // tile.wide))
    numbers = queries, width, call.entries, shares
    launch = launch_of(join, grid, tile, norms.device, numbers, WIDE=tile.wide)
    launch((readings, norms, reading, joint_norms), *numbers, call.scores.factor)
    return reading, joint_norms


def _gradients(
    call: Call, upstream: Tensor, means: Tensor, norms: Tensor, wants_bias: bool
) -> tuple[list[Tensor], Tensor | None]:
    """The gradients of a, c, w and v of each entry of the batch, and of the flat bias."""
    queries, keys, hidden, width = call.sizes
    features = call.features()
    values, coming = _channels_first(call.v), _channels_first(upstream)
    (stored_hidden, a_stored), (_, c_stored) = (side.stored for side in features)
    shared = (*call.inputs(*features, values), norms, coming, means)

    def run(by_keys: bool) -> tuple[Tensor, ...]:
        length, inner_length, stored = (
            (keys, queries, c_stored) if by_keys else (queries, keys, a_stored)
        )
        tile, shares = sizes.of_gradients(length, inner_length, call.entries)
        copies = (shares, call.entries)
        for_outer = call.a.new_zeros(*copies, stored_hidden, stored)
        more = (
            [call.a.new_zeros(*copies, width, stored)]
            if by_keys
            else [torch.zeros_like(for_outer), call.a.new_empty(*copies, queries)]
        )
        grid = (-(-length // tile.outer) * call.entries, shares)
        tensors = (*shared, for_outer, more[0], more[-1], more[0])
        call.launch(backward, grid, tile, tensors, features, BY_KEYS=by_keys)
        return tuple(sums[0] if shares == 1 else sums.sum(0) for sums in (for_outer, *more))

    for_a, for_w, sums = run(by_keys=False)
    for_c, for_v = run(by_keys=True)
    weights = 4 * call.per_entry(call.w, 2)[:, None]
    flat = _bias_gradients(call, shared, upstream, features) if wants_bias else None
    return [
        for_a[:, :hidden, :queries].mT * weights,
        for_c[:, :hidden, :keys].mT * weights,
        sums.sum(-1, keepdim=True) - 2 * for_w[:, :hidden].sum(-1),
        for_v[..., :keys].mT,
    ], flat


def _bias_gradients(
    call: Call,
    shared: tuple[Tensor, ...],
    upstream: Tensor,
    features: tuple[Features, Features],
) -> Tensor:
    """The gradient of the flat bias, each of its entries from all batch entries that share it."""
    bias, users, tile = call.bias, call.where[:, BIAS], sizes.of_bias(*call.sizes)
    counts = torch.bincount(users, minlength=len(bias))
    starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    order, gradients = users.argsort(stable=True), torch.zeros_like(bias)
    one_row, one_column = bias.shape[1] == 1, bias.shape[2] == 1
    grid = (len(bias), -(-bias.shape[1] // tile.outer), -(-bias.shape[2] // tile.inner))
    inputs = (*shared[:4], call.v, *shared[5:-2], upstream, shared[-1])
    rows = {"ONE_ROW": one_row, "ONE_COLUMN": one_column}
    call.launch(bias_gradients, grid, tile, (*inputs, order, starts, gradients), features, **rows)
    return gradients


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        a: Tensor,
        c: Tensor,
        w: Tensor,
        v: Tensor,
        bias: Tensor | None,
        readable: Readable,
        scores: Scores,
    ) -> Tensor:
        with torch.cuda.device_of(a):
            call = _call(scores, a, c, w, v, bias, readable)
            reading, norms = _read(call)
        ctx.scores = scores
        ctx.save_for_backward(*readable, a, c, w, v, bias, reading, norms)
        return reading.reshape(*call.batch, *reading.shape[1:])

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        compute = _Underivable.apply if torch.is_grad_enabled() else _input_gradients
        wants_bias = ctx.needs_input_grad[4]
        return *compute(ctx.scores, wants_bias, *upstream, *ctx.saved_tensors), None, None


def _input_gradients(
    scores: Scores, wants_bias: bool, upstream: Tensor, *saved: Any
) -> tuple[Tensor | None, ...]:
    """The gradients of a, c, w, v and the bias."""
    *rules, a, c, w, v, bias, reading, norms = saved
    with torch.cuda.device_of(reading):
        call = _call(scores, a, c, w, v, bias, Readable(*rules))
        upstream = upstream.reshape(reading.shape).contiguous()
        means = (upstream * reading).sum(-1, dtype=torch.float32)
        flat, for_bias = _gradients(call, upstream, means, norms, wants_bias)
    summed = (
        gradient.reshape(*call.batch, *gradient.shape[1:]).sum_to_size(like.shape).to(like.dtype)
        for gradient, like in zip(flat, (a, c, w, v), strict=True)
    )
    return *summed, None if for_bias is None else for_bias.reshape(bias.shape).to(bias.dtype)


class _Underivable(torch.autograd.Function):
    """The gradients, as a function that raises when it is differentiated itself."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor | None, ...]:
        return _input_gradients(*arguments)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        raise NotImplementedError(
            "kernel 'triton' has no gradients of gradients: pin regard.kernel('blocked')"
        )


def additive(
    a: Tensor,
    c: Tensor,
    w: Tensor,
    v: Tensor,
    bias: Tensor | None,
    readable: Readable,
    factor: float,
    cap: float = 0.0,
) -> Tensor:
    """softmax((cap(w . tanh(a + c)) + bias) factor, masked) v.

    a: (queries, hidden); c: (keys, hidden); w: (hidden); v: (keys, d_value), all float32. Any may
    have batch axes in front, which broadcast. A bias of -inf is a mask. cap 0 is none.
    """
    if bias is not None:
        finite = bias != -torch.inf
        mask = finite if readable.mask is None else readable.mask & finite
        readable = readable._replace(mask=mask)
    reading: Tensor = _Attention.apply(a, c, w, v, bias, readable, Scores(factor, cap))  # type: ignore[no-untyped-call]
    return reading
