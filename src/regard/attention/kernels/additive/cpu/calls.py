"""One call of the kernels: prepare the keys, share out the tiles, put the gradients together."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.attention.kernels.additive.cpu import backward as back
from regard.attention.kernels.additive.cpu import forward as ahead
from regard.attention.kernels.additive.cpu.call_arrays import Array, CallArrays
from regard.attention.kernels.additive.cpu.channel_gradients import ROOM
from regard.attention.kernels.additive.cpu.features import BLOCK, STRIDE, STRIP
from regard.attention.kernels.additive.cpu.groups import CEILINGS, GROUP
from regard.attention.kernels.additive.cpu.hidden import ROWS
from regard.loops.threads import run, split

GRAIN = 1 << 20  # triples of query, key and channel that are worth a thread
TORCH = {np.dtype(np.float32): torch.float32, np.dtype(np.float64): torch.float64}


def _empty(dtype: Any, *shape: int, zero: bool = False) -> Array:
    """An array from torch, which starts all of them on a cache line."""
    make = torch.zeros if zero else torch.empty
    return make(shape, dtype=TORCH[np.dtype(dtype)]).numpy()


def _workers(call: CallArrays) -> int:
    work = call.entries * call.queries * call.keys * call.padded
    return max(1, min(torch.get_num_threads(), work // GRAIN))


def _inputs(call: CallArrays, cap: float, factor: float) -> ahead.Inputs:
    p = call
    number = p.a.dtype.type
    return ahead.Inputs(
        *(p.where, p.a, p.c, p.w, *p.groups, p.sums, p.v),
        *(p.low, p.high, p.bias, p.mask, p.asking, p.stored),
        *(p.keys, p.hidden, p.width, float(cap), float(factor)),
        number(CEILINGS[number]),
    )


def _spread(call: CallArrays, key_places: int, value_places: int, ready: bool) -> ahead.Spread:
    p, make = call, partial(_empty, call.a.dtype)
    strips, wide = -(-p.keys // STRIP), -(-p.width // 8) * 8
    return ahead.Spread(
        ready=int(ready),
        middle=make(key_places, p.hidden),
        powers=make(key_places, strips * p.padded * STRIP),
        top=make(key_places, strips * p.padded),
        turned=make(value_places, strips * wide * STRIP),
        strip=make(STRIP * max(p.padded, wide)),
    )


def _spreads(
    call: CallArrays, inputs: ahead.Inputs, workers: int, values: bool
) -> list[ahead.Spread]:
    """One for each worker to fill as it goes, or a shared one filled before, if keys recur."""
    p = call
    if workers == 1 or len(p.c) >= workers:
        return [_spread(p, 1, int(values), False) for _ in range(workers)]
    shared = _spread(p, len(p.c), len(p.v) if values else 0, True)
    strips = [shared._replace(strip=_empty(p.a.dtype, shared.strip.size)) for _ in range(workers)]
    parts = split(len(p.c), workers)
    run([partial(ahead.prepare, *t, inputs, s) for t, s in zip(parts, strips, strict=False)])
    if values:
        parts = split(len(p.v), workers)
        run(
            [
                partial(ahead.prepare_values, *t, inputs, s)
                for t, s in zip(parts, strips, strict=False)
            ]
        )
    return strips


def _forward_buffers(call: CallArrays) -> ahead.ForwardBuffers:
    make = partial(_empty, call.a.dtype)
    return ahead.ForwardBuffers(
        scores=make(ROWS * STRIDE),
        raw=make(GROUP * STRIP),
        kept=make(1),
        powers=make((ROWS + 1) * call.padded),
        plain=make(ROWS * call.padded),
        scaled=make(ROWS * call.padded),
        peak=make(ROWS),
        total=make(ROWS),
        reading=make(ROWS * call.width),
    )


def _backward_buffers(call: CallArrays, cap: float) -> back.BackwardBuffers:
    make, tiles = partial(_empty, call.a.dtype), back.STRETCH // ROWS
    return back.BackwardBuffers(
        p=make(ROWS * STRIDE),
        e=make(ROWS * STRIDE),
        raw=make(GROUP * STRIP),
        room=make(ROOM),
        kept=make(ROWS * STRIDE if cap else 1),
        powers=make(tiles, (ROWS + 1) * call.padded),
        plain=make(tiles, ROWS * call.padded),
        scaled=make(tiles, ROWS * call.padded),
        for_a=make(tiles, ROWS * call.padded),
        for_c=make(call.padded * BLOCK),
        for_w=_empty(np.float64, call.padded),
        for_keys=make(-(-call.keys // STRIP) * call.padded * STRIP),
        coming=make(tiles, ROWS * call.width),
        means=make(back.STRETCH),
        inverses=make(back.STRETCH),
    )


def _shares(call: CallArrays, rows: int, workers: int) -> list[tuple[int, int]]:
    """Runs of groups of `rows` queries through the whole batch, about the same work in each."""
    count = -(-call.queries // rows)
    if len(call.low) == 1 and (call.high == call.keys).all() and not call.low.any():
        return split(call.entries * count, workers)
    spans = np.zeros((len(call.low), count * rows))
    spans[:, : call.queries] = np.maximum(call.high - call.low, 0) + 1
    costs = spans.reshape(len(spans), count, rows).sum(-1)[call.where[:, ahead.SPAN]]
    done = np.cumsum(costs.reshape(-1))
    cuts = np.searchsorted(done, done[-1] * np.arange(1, workers) / workers).tolist()
    edges = [0, *sorted(set(cuts) - {0}), len(done)]
    return list(pairwise(edges))


def forward(call: CallArrays, cap: float, factor: float) -> tuple[Tensor, Tensor, Tensor]:
    """The reading, and each row's peak and total."""
    p, workers = call, _workers(call)
    inputs = _inputs(p, cap, factor)
    out = _empty(p.a.dtype, p.entries, p.queries * p.width)
    peaks = _empty(p.a.dtype, p.entries, p.queries)
    totals = _empty(p.a.dtype, p.entries, p.queries)
    spreads, shares = _spreads(p, inputs, workers, False), _shares(p, ROWS, workers)
    run(
        [
            partial(ahead.forward, *part, inputs, spread, _forward_buffers(p), out, peaks, totals)
            for part, spread in zip(shares, spreads, strict=False)
        ]
    )
    shape = (*p.batch, p.queries)
    return (
        torch.from_numpy(out).view(*shape, p.width),
        torch.from_numpy(peaks).view(shape),
        torch.from_numpy(totals).view(shape),
    )


def backward(
    call: CallArrays,
    cap: float,
    factor: float,
    out: Tensor,
    peaks: Tensor,
    totals: Tensor,
    upstream: Tensor,
    wants_bias: bool,
) -> tuple[Array, Array, Array, Array, Array]:
    """Gradients of a, c, w, v and bias, each (entries, ...) as in the call."""
    p, workers = call, _workers(call)
    inputs = _inputs(p, cap, factor)
    spreads, shares = _spreads(p, inputs, workers, True), _shares(p, back.STRETCH, workers)
    slots, owners = _slots(p, shares)
    gradients = back.Gradients(
        a=_zeros(owners[0], p.a.shape[1:], p),
        c=_zeros(owners[1], p.c.shape[1:], p),
        w=np.zeros((len(shares), *p.w.shape)),
        v=_zeros(owners[2], p.v.shape[1:], p),
        bias=_zeros(owners[3], p.bias.shape[1:] if wants_bias else (0, 0), p),
    )
    rows = [_by_entry(tensor, p) for tensor in (out, peaks, totals, upstream)]
    run(
        [
            partial(
                back.backward,
                *part,
                inputs,
                spreads[worker],
                _backward_buffers(p, cap),
                slots[worker],
                gradients._replace(w=gradients.w[worker]),
                *rows,
            )
            for worker, part in enumerate(shares)
        ]
    )
    return (
        _gather(gradients.a, owners[0], len(p.a)),
        _gather(gradients.c, owners[1], len(p.c)),
        gradients.w.sum(0)[:, : p.hidden].astype(p.a.dtype),
        _gather(gradients.v, owners[2], len(p.v)),
        _gather(gradients.bias, owners[3], len(p.bias)),
    )


def _by_entry(tensor: Tensor, call: CallArrays) -> Array:
    return tensor.contiguous().reshape(call.entries, -1).numpy()


def _zeros(owners: Array, shape: tuple[int, ...], call: CallArrays) -> Array:
    return _empty(call.a.dtype, len(owners), *shape, zero=True)


def _slots(call: CallArrays, shares: list[tuple[int, int]]) -> tuple[Array, list[Array]]:
    """For each worker and batch entry, where its gradients of a, c, v and bias go.

    No two workers share a place. Also returned: whose gradient each place holds a part of.
    """
    columns = (ahead.A, ahead.C, ahead.V, ahead.BIAS)
    if len(shares) == 1:
        sides = (call.a, call.c, call.v, call.bias)
        slots = np.ascontiguousarray(call.where[None, :, columns])
        return slots, [np.arange(len(side)) for side in sides]
    count = -(-call.queries // back.STRETCH)
    slots = np.zeros((len(shares), call.entries, 4), np.int64)
    owners: list[Array] = []
    for k, column in enumerate(columns):
        places: list[Array] = []
        filled = 0
        for worker, (start, stop) in enumerate(shares):
            first, last = start // count, -(-stop // count)
            mine, inverse = np.unique(call.where[first:last, column], return_inverse=True)
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
