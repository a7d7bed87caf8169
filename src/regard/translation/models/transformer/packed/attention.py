"""Attention within sentences that lie end to end, as one operation with its gradient."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.loops.threads import run, split
from regard.translation.models.transformer.packed import attention_loops as loops
from regard.translation.models.transformer.packed.attention_loops import Layout, Rows
from regard.translation.models.transformer.packed.products import LANES, ROWS


def attend(
    query: Float[Tensor, "queries some"],
    memory: Float[Tensor, "keys rest"],
    asking: NDArray[np.int64],
    answering: NDArray[np.int64],
    heads: int,
    *,
    causal: bool = False,
) -> Float[Tensor, "queries width"]:
    """The readings of every head, side by side: each sentence's queries read its own keys and values.

    Args:
        query: the queries; with three times the width, the keys and values beside them, and `memory` the same.
        memory: keys and values side by side.
        asking: where each sentence begins among the queries.
        answering: and among the keys.
        heads: number of heads.
        causal: whether a query reads the keys up to its own place only.
    """
    reading: Tensor = _Attention.apply(query, memory, asking, answering, heads, causal)  # type: ignore[no-untyped-call]
    return reading


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        memory: Tensor,
        asking: NDArray[np.int64],
        answering: NDArray[np.int64],
        heads: int,
        causal: bool,
    ) -> Tensor:
        own = query is memory
        width = memory.shape[-1] // (3 if own else 2)
        layout, size = _layout(asking, answering, width // heads, heads, causal)
        weights = query.new_empty(size)
        reading = query.new_empty(len(query), width)
        out = _rows(reading)
        q, k, v = _parts(query, memory, width)
        benches = [_room(layout, 4) for _ in range(torch.get_num_threads())]
        run(
            [
                partial(loops.forward, *part, layout, q, k, v, weights.numpy(), out, bench)
                for part, bench in zip(_shares(layout), benches, strict=False)
            ]
        )
        ctx.save_for_backward(query, memory, weights)
        ctx.layout, ctx.width, ctx.own = layout, width, own
        return reading

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        query, memory, weights = ctx.saved_tensors
        if ctx.own:
            memory = query
        for_query = torch.empty(query.shape, dtype=query.dtype)
        for_memory = for_query if ctx.own else torch.empty(memory.shape, dtype=memory.dtype)
        given = _parts(query, memory, ctx.width)
        made = _parts(for_query, for_memory, ctx.width)
        slope = _rows(upstream.contiguous())
        benches = [_room(ctx.layout, 5) for _ in range(torch.get_num_threads())]
        run(
            [
                partial(
                    loops.backward, *part, ctx.layout, *given, weights.numpy(), slope, *made, bench
                )
                for part, bench in zip(_shares(ctx.layout), benches, strict=False)
            ]
        )
        return for_query, None if ctx.own else for_memory, None, None, None, None


def _parts(query: Tensor, memory: Tensor, width: int) -> tuple[Rows, Rows, Rows]:
    first = width if query is memory else 0
    return (
        _rows(query),
        _rows(memory)._replace(offset=first),
        _rows(memory)._replace(offset=first + width),
    )


def _rows(tensor: Tensor) -> Rows:
    """The rows of a tensor of which only the last axis need be dense, without a copy."""
    tensor = tensor.detach()
    rows, width = tensor.shape
    stride = tensor.stride(0) if rows > 1 else width
    flat = tensor.as_strided(((rows - 1) * stride + width,), (1,))
    return Rows(flat.numpy(), stride, 0)


def _layout(
    asking: NDArray[np.int64], answering: NDArray[np.int64], width: int, heads: int, causal: bool
) -> tuple[Layout, int]:
    """The layout, and how many numbers the weights of all sentences take."""
    rows = _up(np.diff(asking), ROWS) * _up(np.diff(answering), LANES) * heads
    places = np.zeros(len(asking), np.int64)
    np.cumsum(rows, out=places[1:])
    scale = np.float32(width**-0.5)
    return Layout(asking, answering, places, heads, width, int(causal), scale), int(places[-1])


def _room(layout: Layout, benches: int) -> NDArray[np.float32]:
    rows = int(max(np.diff(layout.queries).max(), np.diff(layout.keys).max()))
    rows = int(_up(np.int64(rows), LANES))
    padded = int(_up(np.int64(layout.width), LANES))
    return np.zeros((benches, rows * max(rows, padded)), np.float32)


def _shares(layout: Layout) -> list[tuple[int, int]]:
    return split(len(layout.queries) - 1, torch.get_num_threads())


def _up(n: Any, to: int) -> Any:
    return (n + to - 1) // to * to
