"""One call of the kernels: prepare the keys, share out the tiles, put the gradients together."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.attention.kernels.cpu import backward as back
from regard.attention.kernels.cpu import forward as ahead
from regard.attention.kernels.cpu.exponentials import BLOCK, STRIDE
from regard.attention.kernels.cpu.hidden import ROWS
from regard.attention.kernels.cpu.pool import run, split
from regard.attention.kernels.cpu.problem import LIMITS, Array, Problem

GRAIN = 1 << 20  # triples of query, key and channel that are worth a thread
TORCH = {np.dtype(np.float32): torch.float32, np.dtype(np.float64): torch.float64}


def _empty(dtype: Any, *shape: int, zero: bool = False) -> Array:
    """An array from torch, which starts all of them on a cache line."""
    make = torch.zeros if zero else torch.empty
    return make(shape, dtype=TORCH[np.dtype(dtype)]).numpy()


def _workers(problem: Problem) -> int:
    work = problem.entries * problem.queries * problem.keys * problem.padded
    return max(1, min(torch.get_num_threads(), work // GRAIN))


def _prepared(problem: Problem, workers: int) -> tuple[Array, Array, Array]:
    """Middle, exponentials and largest exponentials of the keys."""
    entries, dtype = len(problem.c), problem.a.dtype
    area = -(-problem.keys // BLOCK) * problem.padded
    middle = _empty(dtype, entries, problem.hidden)
    spread, top = _empty(dtype, entries, area * STRIDE), _empty(dtype, entries, area)
    run(
        [
            partial(
                ahead.prepare,
                *part,
                problem.c,
                problem.keys,
                problem.hidden,
                problem.padded,
                middle,
                spread,
                top,
            )
            for part in split(entries, workers)
        ]
    )
    return middle, spread, top


def _common(problem: Problem, cap: float, factor: float) -> tuple[Any, ...]:
    limit = problem.a.dtype.type(LIMITS[TORCH[problem.a.dtype]])
    return (
        problem.low,
        problem.high,
        problem.bias,
        problem.mask,
        problem.asking,
        problem.stored,
        problem.keys,
        problem.hidden,
        problem.width,
        float(cap),
        float(factor),
        limit,
    )


def _shares(problem: Problem, rows: int, workers: int) -> list[tuple[int, int]]:
    """Runs of groups of `rows` queries through the whole batch, about the same work in each."""
    count = -(-problem.queries // rows)
    if len(problem.low) == 1 and (problem.high == problem.keys).all() and not problem.low.any():
        return split(problem.entries * count, workers)
    spans = np.zeros((len(problem.low), count * rows))
    spans[:, : problem.queries] = np.maximum(problem.high - problem.low, 0) + 1
    costs = spans.reshape(len(spans), count, rows).sum(-1)[problem.where[:, ahead.SPAN]]
    done = np.cumsum(costs.reshape(-1))
    cuts = np.searchsorted(done, done[-1] * np.arange(1, workers) / workers).tolist()
    edges = [0, *sorted(set(cuts) - {0}), len(done)]
    return list(pairwise(edges))


def forward(problem: Problem, cap: float, factor: float) -> tuple[Tensor, Tensor, Tensor]:
    """The reading, and each row's peak and total."""
    workers = _workers(problem)
    middle, spread, top = _prepared(problem, workers)
    queries, dtype = problem.queries, problem.a.dtype
    out = _empty(dtype, problem.entries, queries * problem.width)
    peaks = _empty(dtype, problem.entries, queries)
    totals = _empty(dtype, problem.entries, queries)
    p = problem
    run(
        [
            partial(
                ahead.forward,
                *part,
                p.where,
                p.a,
                p.c,
                p.w,
                p.scales,
                p.sums,
                p.v,
                middle,
                spread,
                top,
                *_common(p, cap, factor),
                out,
                peaks,
                totals,
            )
            for part in _shares(p, ROWS, workers)
        ]
    )
    shape = (*p.batch, queries)
    return (
        torch.from_numpy(out).view(*shape, p.width),
        torch.from_numpy(peaks).view(shape),
        torch.from_numpy(totals).view(shape),
    )


def backward(
    problem: Problem,
    cap: float,
    factor: float,
    out: Tensor,
    peaks: Tensor,
    totals: Tensor,
    upstream: Tensor,
    wants_bias: bool,
) -> tuple[Array, Array, Array, Array, Array]:
    """Gradients of a, c, w, v and bias, each (entries, ...) as in the problem."""
    p, workers = problem, _workers(problem)
    middle, spread, top = _prepared(p, workers)
    wide = -(-p.width // 8) * 8
    turned = _empty(p.a.dtype, len(p.v), -(-p.keys // BLOCK) * wide * STRIDE)
    run(
        [
            partial(back_values, *part, p.v, p.keys, p.width, wide, turned)
            for part in split(len(p.v), workers)
        ]
    )
    shares = _shares(p, back.STRETCH, workers)
    slots, owners = _slots(p, shares)
    rows = p.bias.shape[1:] if wants_bias else (0, 0)
    slope_a = _zeros(owners[0], p.a.shape[1:], p)
    slope_c = _zeros(owners[1], spread.shape[1:], p)
    slope_v = _zeros(owners[2], p.v.shape[1:], p)
    slope_bias = _zeros(owners[3], rows, p)
    slope_w = np.zeros((len(shares), *p.w.shape))
    flat = (p.entries, -1) if p.entries and p.queries else (p.entries, 0)
    run(
        [
            partial(
                back.backward,
                *part,
                p.where,
                slots[worker],
                p.a,
                p.c,
                p.w,
                p.scales,
                p.sums,
                p.v,
                middle,
                spread,
                top,
                turned,
                *_common(p, cap, factor),
                out.reshape(flat).numpy(),
                peaks.reshape(flat).numpy(),
                totals.reshape(flat).numpy(),
                upstream.contiguous().reshape(flat).numpy(),
                slope_a,
                slope_c,
                slope_w[worker],
                slope_v,
                slope_bias,
            )
            for worker, part in enumerate(shares)
        ]
    )
    by_key = _gather(slope_c, owners[1], len(p.c)).reshape(len(p.c), -1, p.padded, STRIDE)[
        ..., :BLOCK
    ]
    return (
        _gather(slope_a, owners[0], len(p.a)),
        np.ascontiguousarray(by_key.swapaxes(2, 3)).reshape(len(p.c), -1, p.padded)[
            :, : p.keys, : p.hidden
        ],
        slope_w.sum(0)[:, : p.hidden].astype(p.a.dtype),
        _gather(slope_v, owners[2], len(p.v)),
        _gather(slope_bias, owners[3], len(p.bias)),
    )


back_values = ahead.prepare_values


def _zeros(owners: Array, shape: tuple[int, ...], problem: Problem) -> Array:
    return _empty(problem.a.dtype, len(owners), *shape, zero=True)


def _slots(problem: Problem, shares: list[tuple[int, int]]) -> tuple[Array, list[Array]]:
    """For each worker and batch entry, where its gradients of a, c, v and bias go.

    No two workers share a place. Also returned: whose gradient each place holds a part of.
    """
    count = -(-problem.queries // back.STRETCH)
    slots = np.zeros((len(shares), problem.entries, 4), np.int64)
    owners: list[Array] = []
    for k, column in enumerate((ahead.A, ahead.C, ahead.V, ahead.BIAS)):
        places: list[Array] = []
        filled = 0
        for worker, (start, stop) in enumerate(shares):
            first, last = start // count, -(-stop // count)
            mine, inverse = np.unique(problem.where[first:last, column], return_inverse=True)
            slots[worker, first:last, k] = filled + inverse
            filled += len(mine)
            places.append(mine)
        owners.append(np.concatenate(places))
    return slots, owners


def _gather(parts: Array, owners: Array, entries: int) -> Array:
    """The sum of the parts of each entry, in the order of the workers."""
    if len(owners) == entries and (owners == np.arange(entries)).all():
        return parts
    total = np.zeros((entries, *parts.shape[1:]), parts.dtype)
    for part, owner in zip(parts, owners, strict=True):
        total[owner] += part
    return total
