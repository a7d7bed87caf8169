"""The highest of many numbers, without sorting them all."""

from __future__ import annotations

import torch
from torch import Tensor

SORTED = 64  # numbers that are sorted at once


def first(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` highest of the last axis and where they are, of equals the first one first.

    Where there are fewer, -inf at position 0. The `count` highest lie within the `count` runs of
    neighbours whose maxima come first, ties and all: were one in another run, each of those would
    hold a number that comes before it. So only the maxima of the runs are ranked, and then the
    numbers within the runs that won; a maximum is one pass, as fast as memory.
    """
    length = scores.shape[-1]
    if count == 0 or length == 0:
        shape = (*scores.shape[:-1], count)
        return scores.new_full(shape, -torch.inf), torch.zeros(
            shape, dtype=torch.long, device=scores.device
        )
    if length < count:
        values, found = first(scores, length)
        missing = (0, count - length)
        return (
            torch.nn.functional.pad(values, missing, value=-torch.inf),
            torch.nn.functional.pad(found, missing),
        )
    if length <= max(SORTED, 4 * count):
        return _ranked(scores, count)
    run = _run(length, count)
    even = length // run * run
    maxima = scores[..., :even].unflatten(-1, (-1, run)).amax(-1)
    if even < length:
        maxima = torch.cat([maxima, scores[..., even:].amax(-1, keepdim=True)], -1)
    winners = first(maxima, count)[1].sort(-1).values
    places = winners.unsqueeze(-1) * run + torch.arange(run, device=scores.device)
    places = places.flatten(-2)
    candidates = scores.gather(-1, places.clamp(max=length - 1))
    if even < length:
        candidates = candidates.masked_fill(places >= length, -torch.inf)
    values, found = first(candidates, count)
    return values, places.gather(-1, found).clamp(max=length - 1)


def _ranked(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    if count == 1:
        values, found = scores.max(-1, keepdim=True)
        return values, found
    ordered, order = scores.sort(dim=-1, descending=True, stable=True)
    return ordered[..., :count], order[..., :count]


def _run(length: int, count: int) -> int:
    """Neighbours in a run: about as many runs as numbers in the runs that win; a power of two."""
    run = 2
    while 4 * run * run * count <= length:
        run *= 2
    return run
