"""One call of the kernels: lay out the tensors, share out the tiles, put the gradients together."""

from collections.abc import Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.kernels.additive.cpu import backward as back
from regard.attention.kernels.additive.cpu import forward as ahead
from regard.attention.kernels.additive.cpu import layout
from regard.attention.kernels.additive.cpu.channel_gradients import ROOM
from regard.attention.kernels.additive.cpu.features import GAP, SIDE, STRIDE, STRIP
from regard.attention.kernels.additive.cpu.groups import CEILINGS, GROUP, arrange
from regard.attention.kernels.additive.cpu.hidden import ROWS
from regard.attention.kernels.additive.cpu.layout import Buffers, Entry, Gradients, Inputs
from regard.attention.kernels.additive.requests import Sides, batch_of, flatten
from regard.attention.shapes import Shape
from regard.loops.threads import run, split

Array = np.ndarray[Any, Any]
Share = tuple[int, int]

LINE = 16  # numbers of a cache line, at least
GRAIN = 1 << 20  # triples of query, key and channel that are worth a thread
TORCH: dict[Any, torch.dtype] = {np.dtype("f4"): torch.float32, np.dtype("f8"): torch.float64}


def _empty(dtype: Any, *shape: int, zero: bool = False) -> Array:
    """An array from torch, which starts all of them on a cache line."""
    make = torch.zeros if zero else torch.empty
    return make(shape, dtype=TORCH[dtype]).numpy()


def _inputs(sides: Sides, batch: Shape, cap: float, temperature: float, turned: bool) -> Inputs:
    """Lay out the tensors. Except for w, contiguous tensors are not copied."""
    hidden, (keys, width) = sides.a.shape[-1], sides.v.shape[-2:]
    # FSDP resizes the storage of a parameter, which numpy must not hold: this is a copy.
    w = F.pad(sides.w, (0, -hidden % (2 * GROUP)))
    flat, where = flatten(sides._replace(w=w, bias=sides.bias.to(sides.a.dtype)), batch)
    arrays: Any = Sides._make(side.detach().contiguous().numpy() for side in flat)
    strips, weights = -(-keys // STRIP), arrays.w
    padded, number = weights.shape[1], weights.dtype.type
    ratios, turns = arrange(weights)
    entries = Entry(
        a=arrays.a.reshape(len(arrays.a), -1),
        c=arrays.c.reshape(len(arrays.c), -1),
        weights=weights,
        ratios=ratios,
        turns=turns,
        offset=weights.sum(-1, dtype=np.float64).astype(number),
        v=arrays.v.reshape(len(arrays.v), -1),
        low=np.ascontiguousarray(arrays.spans[:, 0]),  # of any batch: loops are compiled by layout
        high=np.ascontiguousarray(arrays.spans[:, 1]),
        bias=arrays.bias,
        mask=arrays.mask,
        asking=arrays.asking,
        stored=arrays.stored,
        powers=_empty(weights.dtype, len(arrays.c), strips * padded * STRIP),
        top=_empty(weights.dtype, len(arrays.c), strips * padded),
        turned=_empty(weights.dtype, len(arrays.v), strips * _wide(width) * STRIP * turned),
        queries=sides.a.shape[-2],
        keys=keys,
        hidden=hidden,
        width=width,
        cap=cap,
        factor=1.0 / temperature,
        ceiling=number(CEILINGS[number]),
    )
    return Inputs(where.numpy(), entries)


def _wide(width: int) -> int:
    return -(-width // 8) * 8


def _workers(inputs: Inputs) -> int:
    p = inputs.all
    work: int = len(inputs.where) * p.queries * p.keys * p.weights.shape[1]
    return max(1, min(torch.get_num_threads(), work // GRAIN))


def _prepare(inputs: Inputs, workers: int, values: bool) -> None:
    """Lay out keys and values for the loops."""
    p, number = inputs.all, inputs.all.a.dtype
    loops = [(ahead.prepare_keys, len(p.c), p.weights.shape[1])]
    if values:
        loops.append((ahead.prepare_values, len(p.v), _wide(p.width)))
    for loop, entries, channels in loops:
        shares, room = split(entries, workers), SIDE * (channels + GAP)
        run([partial(loop, *share, inputs, _empty(number, room, zero=True)) for share in shares])


def _buffers(inputs: Inputs) -> Buffers:
    """A worker's buffers, zeros: parts of one array, as small calls would notice an allocation for each."""
    p, padded, backward = inputs.all, inputs.all.weights.shape[1], inputs.all.turned.size > 0
    sizes = Buffers(
        powers=(ROWS + 1) * padded,
        plain=ROWS * padded,
        scaled=ROWS * padded,
        scores=ROWS * STRIDE,
        raw=GROUP * STRIP,
        peak=ROWS,
        total=ROWS,
        reading=ROWS * p.width,
        kept=ROWS * STRIDE if p.cap and backward else 0,
        errors=ROWS * STRIDE * backward,
        room=ROOM * backward,
        for_a=ROWS * padded * backward,
        for_w=0,
        for_keys=p.powers.shape[1] * backward,
    )
    starts = [0, *accumulate(-(-size // LINE) * LINE for size in sizes)]
    array = _empty(p.a.dtype, starts.pop(), zero=True)
    buffers = (array[start : start + size] for start, size in zip(starts, sizes, strict=True))
    return Buffers(*buffers)._replace(for_w=np.empty(padded * backward))


def _shares(inputs: Inputs, workers: int) -> list[Share]:
    """Runs of tiles through the whole batch, about the same work in each."""
    p, where, tiles = inputs.all, inputs.where, -(-inputs.all.queries // ROWS)
    if workers == 1:
        return [(0, len(where) * tiles)]
    spans = np.zeros((len(p.low), tiles * ROWS))
    spans[:, : p.queries] = np.maximum(p.high - p.low, 0) + 1
    costs = spans.reshape(len(spans), tiles, ROWS).sum(-1)[where[:, layout.SPAN]]
    progress = np.cumsum(costs.reshape(-1))
    cuts = np.searchsorted(progress, progress[-1] * np.arange(1, workers) / workers).tolist()
    return list(pairwise([0, *sorted(set(cuts) - {0}), len(progress)]))


def forward(sides: Sides, cap: float, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    """The reading, and each row's peak and total."""
    batch = batch_of(sides)
    inputs = _inputs(sides, batch, cap, temperature, False)
    p, workers, entries = inputs.all, _workers(inputs), len(inputs.where)
    make = partial(_empty, p.a.dtype)
    _prepare(inputs, workers, False)
    out, peaks = make(entries, p.queries * p.width), make(entries, p.queries)
    totals = make(entries, p.queries)
    run(
        [
            partial(ahead.forward, *share, inputs, _buffers(inputs), out, peaks, totals)
            for share in _shares(inputs, workers)
        ]
    )
    shape = (*batch, p.queries)
    reading, peak, total = (torch.from_numpy(each) for each in (out, peaks, totals))
    return reading.view(*shape, p.width), peak.view(shape), total.view(shape)


def backward(
    sides: Sides,
    cap: float,
    temperature: float,
    rows: Sequence[Tensor],
    wants_bias: bool,
) -> Gradients:
    """The gradients, each (entries, ...).

    rows: the reading, its peaks and totals, and its own gradient.
    """
    inputs = _inputs(sides, batch_of(sides), cap, temperature, True)
    p, workers = inputs.all, _workers(inputs)
    _prepare(inputs, workers, True)
    shares = _shares(inputs, workers)
    slots, owners = _slots(inputs, shares)
    make = partial(_empty, p.a.dtype, zero=True)
    gradients = Gradients(
        a=make(len(owners.a), *p.a.shape[1:]),
        c=make(len(owners.c), *p.c.shape[1:]),
        w=np.zeros((len(shares), *p.weights.shape)),
        v=make(len(owners.v), *p.v.shape[1:]),
        bias=make(len(owners.bias), *(p.bias.shape[1:] if wants_bias else (0, 0))),
    )
    arrays = [row.contiguous().reshape(len(inputs.where), -1).numpy() for row in rows]
    run(
        [
            partial(
                back.backward,
                *share,
                inputs,
                _buffers(inputs),
                slot,
                gradients._replace(w=w),
                *arrays,
            )
            for share, slot, w in zip(shares, slots, gradients.w, strict=True)
        ]
    )
    return Gradients(
        a=_gather(gradients.a, owners.a, len(p.a)),
        c=_gather(gradients.c, owners.c, len(p.c)),
        w=gradients.w.sum(0)[:, : p.hidden].astype(p.a.dtype),
        v=_gather(gradients.v, owners.v, len(p.v)),
        bias=_gather(gradients.bias, owners.bias, len(p.bias)),
    )


class Owners(NamedTuple):
    """For each place of a worker's gradients, the entry whose gradient it holds a part of."""

    a: Array
    c: Array
    v: Array
    bias: Array


def _slots(inputs: Inputs, shares: list[Share]) -> tuple[Array, Owners]:
    """For each worker and batch entry, where its gradients of a, c, v and bias go.

    No two workers share a place.
    """
    where, tiles = inputs.where, -(-inputs.all.queries // ROWS)
    columns = (layout.A, layout.C, layout.V, layout.BIAS)
    slots = np.zeros((len(shares), len(where), 4), np.int64)
    owners: list[Array] = []
    for k, column in enumerate(columns):
        places: list[Array] = []
        filled = 0
        for worker, (start, stop) in enumerate(shares):
            low, high = start // tiles, -(-stop // tiles)
            mine, inverse = np.unique(where[low:high, column], return_inverse=True)
            slots[worker, low:high, k] = filled + inverse
            filled += len(mine)
            places.append(mine)
        owners.append(np.concatenate(places))
    return slots, Owners(*owners)


def _gather(sums: Array, owners: Array, entries: int) -> Array:
    """The sum of the parts of each entry, in the order of the workers."""
    if len(owners) == entries and (owners == np.arange(entries)).all():
        return sums
    total = np.zeros((entries, *sums.shape[1:]), sums.dtype)
    for worker_sum, owner in zip(sums, owners, strict=True):
        total[owner] += worker_sum
    return total
