"""Dot products under a mask as one function of torch: tensors with broadcast batch axes in, gradients out."""

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.attention.kernels.additive.requests import Rules
from regard.attention.kernels.triton import sizes
from regard.attention.kernels.triton.dots import gradients, means_of, read
from regard.attention.kernels.triton.launches import Launch
from regard.attention.kernels.triton.runs import runs_of_keys, runs_of_queries
from regard.attention.shapes import Frame, Shape, broadcast
from regard.loops.availability import capturing

ROWS = 64  # of a program that multiplies readings and their gradients
COUNTED = 1 << 31  # numbers that 32 bits count

Place = tuple[Shape, Shape]  # batch axes and their strides


class Runs(NamedTuple):
    """Which keys may be read: a span of keys (2, queries), documents (empty where there are none), and runs of blocks.

    The runs are those of blocks of queries for the reading, for the gradients, and of blocks of keys (see runs.py).
    """

    spans: Tensor
    asking: Tensor
    stored: Tensor
    reading: Tensor
    by_queries: Tensor
    by_keys: Tensor


def runs_of(rules: Rules, frame: Frame, tiles: sizes.DotTiles) -> Runs:
    """The rules as the kernels read them."""
    _, queries, keys, device = frame
    low, high = rules.low, rules.high
    if low is None or high is None:
        low = torch.zeros(queries, dtype=torch.int64, device=device)
        high = torch.full_like(low, keys)
    spans = torch.stack(torch.broadcast_tensors(low, high), -2).clamp(0, keys).int()
    spans = spans.expand(*spans.shape[:-1], queries).contiguous()
    nothing = spans.new_empty(0)
    asking, stored = (
        nothing if ids is None else ids.contiguous() for ids in (rules.asking, rules.stored)
    )

    def table(kernel: Any, length: int, block: int) -> Tensor:
        entries, blocks = prod(spans.shape[:-2]), -(-length // block)
        runs = spans.new_empty(entries, blocks, 4)
        kernel[(entries * blocks,)](spans, runs, queries, keys, BLOCK=block, num_warps=4)
        return runs

    with torch.cuda.device_of(spans):
        reading = table(runs_of_queries, queries, tiles.reading.outer)
        by_queries = (
            reading
            if tiles.by_queries.outer == tiles.reading.outer
            else table(runs_of_queries, queries, tiles.by_queries.outer)
        )
        by_keys = table(runs_of_keys, keys, tiles.by_keys.outer)
    return Runs(spans, asking, stored, reading, by_queries, by_keys)


@dataclass
class Plan:
    """The launches for tensors of some sizes and strides."""

    batch: Shape
    places: tuple[Place, ...]
    row_strides: tuple[int, ...]
    reading: Launch
    means: Launch
    gradients: Launch
    _starts: Tensor | None = None

    def starts(self, device: torch.device) -> Tensor:
        """Where each entry of the batch finds its numbers in each side, (batch, sides)."""
        if self._starts is not None:
            return self._starts
        starts = torch.zeros(*self.batch, len(self.places), dtype=torch.int64, device=device)
        for side, (front, strides) in enumerate(self.places):
            for axis, (size, stride) in enumerate(zip(front, strides, strict=True)):
                index = torch.arange(size, device=device) * stride
                starts[..., side] += index.reshape(size, *[1] * (len(front) - axis - 1))
        # Memory that is written while a graph is captured has no numbers before the graph runs.
        if not capturing(device):
            self._starts = starts
        return starts


@lru_cache(maxsize=256)
def _plan(
    shapes: tuple[Shape, ...],
    strides: tuple[Shape, ...],
    rules: tuple[Shape, ...],
    dtype: torch.dtype,
    device: torch.device,
) -> Plan:
    """The plan for query, key and value, and for spans, asking and stored, which are contiguous."""
    places = [(shape[:-2], stride[:-2]) for shape, stride in zip(shapes, strides, strict=True)]
    is_aligned = all(
        stride % 16 == 0 or size == 1
        for place in places
        for size, stride in zip(*place, strict=True)
    )
    for shape, axes in zip(rules, (2, 1, 1), strict=True):
        front = shape[:-axes]
        places.append((front, tuple(prod(front[axis + 1 :]) for axis in range(len(front)))))
    batch = broadcast(*[front for front, _ in places])
    (queries, depth), (keys, width) = shapes[0][-2:], shapes[2][-2:]
    entries, tiles = prod(batch), sizes.of_dots(depth, width, dtype.itemsize)
    constants = {
        "DOCUMENTS": rules[1] != (0,), "ALIGNED": is_aligned, "DEPTH": depth, "WIDTH": width,
        "DEEP": sizes.power(depth), "WIDE": sizes.power(width),
    }  # fmt: skip

    def launch(kernel: Any, tile: sizes.Tile, programs: int, **more: Any) -> Launch:
        return Launch(kernel, (programs,), tile, **constants, **more)

    reading, by_queries, by_keys = tiles
    sides = {"KEY_OUTER": by_keys.outer, "KEY_INNER": by_keys.inner}
    blocks = -(-queries // by_queries.outer) + -(-keys // by_keys.outer)
    return Plan(
        batch,
        tuple(places),
        tuple(stride[-2] for stride in strides),
        launch(read, reading, -(-queries // reading.outer) * entries),
        launch(means_of, sizes.Tile(ROWS, ROWS, 4), -(-entries * queries // ROWS)),
        launch(gradients, by_queries, blocks * entries, **sides),
    )


def _in_rows(side: Tensor) -> Tensor:
    """The tensor with numbers of a row side by side, and an entry that 32 bits count."""
    is_fit = side.stride(-1) == 1 and side.shape[-2] * side.stride(-2) < COUNTED
    return side if is_fit else side.contiguous()


Sides = tuple[Tensor, Tensor, Tensor]  # query, key, value


def _planned(sides: Sides, runs: Runs) -> Plan:
    return _plan(
        tuple(side.shape for side in sides),
        tuple(side.stride() for side in sides),
        (runs.spans.shape, runs.asking.shape, runs.stored.shape),
        sides[0].dtype,
        sides[0].device,
    )


def _read(sides: Sides, runs: Runs, factor: float) -> tuple[Tensor, Tensor]:
    """The reading, and of each query its peak and 1 / total."""
    plan = _planned(sides, runs)
    query, key, value = sides
    queries, keys = query.shape[-2], key.shape[-2]
    reading = value.new_empty(*plan.batch, queries, value.shape[-1])
    norms = torch.empty(*plan.batch, 2, queries, device=value.device)
    entries = norms.numel() // (2 * queries)
    starts = plan.starts(query.device)
    tensors = (starts, *sides, *runs[:4], reading, norms)
    plan.reading(tensors, entries, queries, keys, *plan.row_strides, factor)
    return reading, norms


def _gradients(
    factor: float, upstream: Tensor, query: Tensor, key: Tensor, value: Tensor, *saved: Tensor
) -> tuple[Tensor, ...]:
    """The gradients of query, key and value."""
    sides = _in_rows(query), _in_rows(key), _in_rows(value)
    reading, norms, *rules = saved
    with torch.cuda.device_of(query):
        flat = _entry_gradients(sides, Runs(*rules), upstream.contiguous(), reading, norms, factor)
    return tuple(
        gradient if gradient.shape == side.shape else gradient.sum_to_size(side.shape)
        for gradient, side in zip(flat, (query, key, value), strict=True)
    )


def _entry_gradients(
    sides: Sides, runs: Runs, upstream: Tensor, reading: Tensor, norms: Tensor, factor: float
) -> Sides:
    """The gradients of each entry of the batch."""
    plan = _planned(sides, runs)
    queries, keys = sides[0].shape[-2], sides[1].shape[-2]
    means = norms.new_empty(*plan.batch, queries)
    plan.means((upstream, reading, means), means.numel())
    query, key, value = (side.new_empty(plan.batch + side.shape[-2:]) for side in sides)
    tensors = (
        plan.starts(means.device), *sides, *runs[:3], runs.by_queries, runs.by_keys, norms,
        upstream, means, query, key, value,
    )  # fmt: skip
    entries = means.numel() // queries
    plan.gradients(tensors, entries, queries, keys, *plan.row_strides, factor)
    return query, key, value


class _Underivable(torch.autograd.Function):
    """The gradients, as a function that raises when it is differentiated itself."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor, ...]:
        return _gradients(*arguments)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        raise NotImplementedError(
            "kernel 'triton' has no gradients of gradients: pin regard.kernel('blocked')"
        )


class _Dots(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, runs: Runs, factor: float
    ) -> Tensor:
        sides = _in_rows(query), _in_rows(key), _in_rows(value)
        with torch.cuda.device_of(query):
            reading, norms = _read(sides, runs, factor)
        ctx.factor = factor
        ctx.save_for_backward(query, key, value, reading, norms, *runs)
        return reading

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        compute = _Underivable.apply if torch.is_grad_enabled() else _gradients
        return *compute(ctx.factor, *upstream, *ctx.saved_tensors), None, None


def dots(query: Tensor, key: Tensor, value: Tensor, runs: Runs, factor: float) -> Tensor:
    """softmax(factor query . key, masked) value, for tensors of one dtype whose batch axes broadcast."""
    reading: Tensor = _Dots.apply(query, key, value, runs, factor)  # type: ignore[no-untyped-call]
    return reading
