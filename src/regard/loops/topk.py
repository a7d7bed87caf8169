"""The highest numbers of every row, without sorting it: one pass for maxima, and one that skips most runs.

The k highest lie in runs of neighbours whose maxima are at least the k-th highest maximum: k runs
hold a number as high. So the first pass finds the maxima, and the second looks into few runs.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.loops.compiling import compiled, inner
from regard.loops.threads import run, split

RUN = 64  # neighbours whose maximum is a few vector operations


def highest(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` highest of the last axis and their positions, ties in the order of the positions.

    Where there are fewer, -inf at position 0. A NaN ranks nowhere.
    """
    length, shape = scores.shape[-1], (*scores.shape[:-1], count)
    flat = scores.reshape(-1, length)
    whole = length // RUN * RUN
    maxima = [flat[:, :whole].unflatten(-1, (whole // RUN, RUN)).amax(-1)]
    if whole < length:
        maxima.append(flat[:, whole:].amax(-1, keepdim=True))
    tops = torch.cat(maxima, -1) if len(maxima) > 1 else maxima[0]
    values = flat.new_full((len(flat), count), -torch.inf)
    found = torch.zeros((len(flat), count), dtype=torch.long)
    floors = flat.new_empty(count)
    given = [each.reshape(-1).numpy() for each in (flat, tops, values, found)]
    parts = split(len(flat), torch.get_num_threads())
    run([partial(rank, *part, *given, length, count, floors.clone().numpy()) for part in parts])
    return values.view(shape), found.view(shape)


@inner
def insert(values: Any, base: Any, count: Any, number: Any) -> Any:
    """Put a number among the `count` highest so far, after its equals; the place it got."""
    k = count - 1
    while k > 0 and values[np.uint64(base + k - 1)] < number:
        values[np.uint64(base + k)] = values[np.uint64(base + k - 1)]
        k -= 1
    values[np.uint64(base + k)] = number
    return k


@compiled
def rank(
    first: int,
    last: int,
    scores: Any,
    tops: Any,
    values: Any,
    found: Any,
    length: int,
    count: int,
    floors: Any,
) -> None:
    """Rows first to last; `tops` are the maxima of their runs, `floors` room for the highest."""
    runs = (length + RUN - 1) // RUN
    low = scores.dtype.type(-np.inf)
    for row in range(first, last):
        base, top, to = row * length, row * runs, row * count
        for k in range(count):
            floors[k] = low
        for r in range(runs):
            most = tops[np.uint64(top + r)]
            if most > floors[count - 1]:
                insert(floors, 0, count, most)
        floor, least = floors[count - 1], low
        for r in range(runs):
            most = tops[np.uint64(top + r)]
            if most < floor or most <= least:  # a run with a NaN has no maximum: it is read
                continue
            for j in range(r * RUN, min(r * RUN + RUN, length)):
                number = scores[np.uint64(base + j)]
                if number >= floor and number > least:
                    k = insert(values, to, count, number)
                    for i in range(count - 1, k, -1):
                        found[np.uint64(to + i)] = found[np.uint64(to + i - 1)]
                    found[np.uint64(to + k)] = j
                    least = values[np.uint64(to + count - 1)]
