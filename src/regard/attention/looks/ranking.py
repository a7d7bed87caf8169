"""The highest of many numbers, without sorting them all."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.loops import availability as loops

RANKED = 64  # numbers that are ranked at once
SHORT, FEW, MANY = 1024, 8, 32  # runs of FEW in a row up to SHORT, of MANY at least in a longer one
LOW = 0xFFFFFFFF
WORTH, MOST = 1 << 19, 64  # numbers in all, and ranks, that the compiled way is for


def first(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` highest of the last axis and their positions, ties in the order of the positions.

    Where there are fewer, -inf at position 0. The `count` highest lie within the `count` runs of
    neighbours whose maxima come first, ties and all: were one in another run, each of those would
    hold a number that comes before it. So only the maxima of the runs are ranked, and then the
    numbers within the runs that won; a maximum is one pass, as fast as memory.
    """
    length = scores.shape[-1]
    if count == 0 or length == 0:
        shape = (*scores.shape[:-1], count)
        nowhere = torch.zeros(shape, dtype=torch.long, device=scores.device)
        return scores.new_full(shape, -torch.inf), nowhere
    if _compiled(scores, count):
        from regard.loops.topk import highest

        return highest(scores, count)
    if length < count:
        values, found = first(scores, length)
        missing = (0, count - length)
        return F.pad(values, missing, value=-torch.inf), F.pad(found, missing)
    run = _run(length, count)
    if length <= RANKED or 2 * run * count > length:
        return _ranked(scores, count)
    even = length // run * run
    maxima = scores[..., :even].unflatten(-1, (length // run, run)).amax(-1)
    if even < length:
        maxima = torch.cat([maxima, scores[..., even:].amax(-1, keepdim=True)], -1)
    winners = first(maxima, count)[1].sort(dim=-1).values
    places = winners.unsqueeze(-1) * run + torch.arange(run, device=scores.device)
    places = places.flatten(-2)
    candidates = scores.gather(-1, places.clamp_(max=length - 1))
    if even < length:  # the last run is shorter: clamped positions would come twice
        again = F.pad(places[..., 1:] == places[..., :-1], (1, 0))
        candidates.masked_fill_(again, -torch.inf)
    values, found = first(candidates, count)
    return values, places.gather(-1, found)


def _compiled(scores: Tensor, count: int) -> bool:
    """Whether one pass of compiled code is worth loading it: it takes a third of the time."""
    several, long = 1 < count <= MOST, scores.shape[-1] > RANKED
    plain = scores.is_cpu and scores.dtype in (torch.float32, torch.float64)
    return several and long and plain and scores.numel() >= WORTH and loops.serve(scores)


def _ranked(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    if count == 1:
        values, found = scores.max(-1, keepdim=True)
        return values, found
    if scores.dtype != torch.float32 or scores.shape[-1] > LOW:
        ordered, order = scores.sort(dim=-1, descending=True, stable=True)
        return ordered[..., :count], order[..., :count]
    # topk is quicker than a stable sort but puts equals in any order: rank whole numbers that have
    # none, the bits of the score (in an order that is the floats') above those of its position.
    bits = (scores + 0.0).view(torch.int32)
    bits = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits).to(torch.int64) << 32
    keys = bits | torch.arange(LOW, LOW - scores.shape[-1], -1, device=scores.device)
    found = LOW - (keys.topk(count).values & LOW)
    return scores.gather(-1, found), found


def _run(length: int, count: int) -> int:
    """Neighbours in a run: about as many runs as numbers in the runs that win; a power of two.

    A maximum of many neighbours is a few vector operations; of a handful, it is slow.
    """
    if length <= SHORT:
        return FEW
    run = MANY
    while 4 * run * run * count <= length:
        run *= 2
    return run
