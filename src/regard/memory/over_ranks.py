"""Bounded readings of memories whose entries are shared out among processes, the ranks of a group."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from regard.attention.normalisers import NormaliserLike
from regard.attention.ranks import (
    Description,
    Keys,
    agree,
    check_softmax,
    gather,
    meet,
    row_of,
)
from regard.attention.shapes import Frame
from regard.memory.bounded import SLACK, BoundedReading

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

Compute = Callable[[Any], tuple[BoundedReading, Tensor]]


def section(
    group: ProcessGroup,
    query: Tensor,
    mask: Any,
    entries: Any,
    normaliser: NormaliserLike | None,
) -> tuple[Keys, Any, int]:
    """Where the entries of this rank stand among all, the mask of these, and the width of all values."""
    rows = query.shape[:-1]

    def describe() -> Description:
        check_softmax(normaliser)
        return Description(rows, entries.d_value or -1, entries.rows, mask is not None)

    def ruled() -> tuple[Any, tuple[int, ...]]:
        frame = Frame(rows[:-1], rows[-1], len(keys.columns), query.device)
        return keys.mask_of(mask, frame), rows[:-1]

    keys = meet(group, describe)
    return keys, agree(group, keys, ruled), keys.width if keys.width >= 0 else query.shape[-1]


def read_within(
    group: ProcessGroup,
    query: Tensor,
    mask: Any,
    entries: Any,
    normaliser: NormaliserLike | None,
    compute: Compute,
) -> BoundedReading:
    """The readings of all ranks as one, with a bound on what they left out together.

    A rank that leaves out b_r of its weight, beside entries of the sum M_r, leaves out at most
    rest_r = M_r b_r / (1 - b_r). With M = sum M_r: bound = sum rest_r / (M + sum rest_r), which is at most the
    largest b_r, and error = sum rest_r / (M + rest_r) (length of the values left out + length of the reading).
    Each rest_r may be too large, so that it stands in the denominator of its own rank alone.

    Args:
        group: the ranks.
        query: the same on all ranks.
        mask: of all entries.
        entries: those of this rank.
        normaliser: a softmax.
        compute: the bounded reading of this rank under its mask, and ln M_r of each query.
    """
    keys, own_mask, width = section(group, query, mask, entries, normaliser)
    shape = query.shape[:-1]
    count = prod(shape)

    def numbers() -> np.ndarray:
        if not keys.columns:
            return np.full(count, -np.inf)
        answer, logs = compute(own_mask)
        read = torch.tensor([answer.share * len(keys.columns)])
        return row_of([logs, answer.bound, answer.error, answer.reading, read])

    messages = torch.from_numpy(gather(group, numbers, count * (width + 3) + 1))
    read = float(messages[:, -1].sum())
    logs, bounds, errors, readings = messages[:, :-1].split([count] * 3 + [count * width], dim=-1)
    masses = logs.softmax(0).nan_to_num(0.0)  # nothing to read has no weight
    reading = (masses.unsqueeze(-1) * readings.view(len(logs), count, width)).sum(0)
    rests = torch.where(bounds < 1, masses * bounds / (1 - bounds) * (1 + SLACK), torch.inf)
    rest, length = rests.sum(0), reading.norm(dim=-1)
    lengths = torch.where(bounds > 0, errors / bounds, 0.0) + length
    unit = torch.finfo(query.dtype).eps
    error = (_share(rests) * lengths).sum(0) + unit * length * (rest > 0)
    dtype = torch.promote_types(query.dtype, torch.float32)
    rounding = 2 * torch.finfo(dtype).eps
    bound, error = (
        (side * (1 + rounding)).view(shape).to(query.device, dtype)
        for side in (_share(rest).clamp(max=1 - rounding), error)
    )
    return BoundedReading(
        reading.view(*shape, width).to(query), bound, error, read / max(1, keys.total)
    )


def _share(rest: Tensor) -> Tensor:
    """rest / (rest + 1), also of infinity."""
    return 1 / (1 + 1 / rest)
