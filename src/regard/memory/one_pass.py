"""Readings of few queries by compiled loops, which take keys and values from the caches once."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from regard.attention.parts import Part
from regard.memory.bounded import Linear

FEW = 4  # queries; a matrix product of more takes less time


def serves(form: Linear | None) -> bool:
    """Whether the loops compute a softmax of these scores, and in less time than torch."""
    if form is None or form.cap or len(form.query) > FEW:
        return False
    return bool(torch.isfinite(form.query).all())


def part_of(
    form: Linear,
    blocks: Iterable[tuple[tuple[int, int], Tensor, Tensor]],
    d_value: int,
    readable: Tensor | None,
) -> Part:
    """The part of all blocks in the reading.

    Args:
        form: the scores.
        blocks: the rows of each, its keys and its values, which are float32 or float16.
        d_value: the width of the values.
        readable: (queries or 1, entries) which may be read; None for all.
    """
    from regard.memory.reading_loops import HALVES_ARE_READ, TILE, fold, fold_halves  # and numba

    queries = (form.query / form.temperature).float().contiguous().numpy()
    count, width = queries.shape
    if readable is not None:
        readable = readable.expand(count, -1).view(
            torch.uint8
        )  # numba is slow to recognise booleans
    sums, blend = np.zeros((count, 2)), np.zeros((count, d_value))
    sums[:, 0], everything = -np.inf, np.empty(0, np.uint8)
    room, *wide = (
        np.zeros(shape, np.float32) for shape in (TILE + d_value, (TILE, width), (TILE, d_value))
    )
    for span, key, value in blocks:
        is_half = key.dtype == value.dtype == torch.float16 and HALVES_ARE_READ
        numbers = _bits if is_half else _floats
        keys = numbers(key)
        values = numbers(value) if value is not key else keys[:0] if is_half else keys
        for row, query in enumerate(queries):
            marks = everything if readable is None else readable[row, slice(*span)].numpy()
            arguments = query, form.by_length, keys, values, marks, sums[row], blend[row], room
            if is_half:
                fold_halves(*arguments, *wide)
            else:
                fold(*arguments)
    maximum, total = torch.from_numpy(sums).unbind(-1)
    return Part(maximum.float(), total, torch.from_numpy(blend))


def _bits(rows: Tensor) -> np.ndarray:
    return rows.view(torch.int16).numpy().view(np.uint16)


def _floats(rows: Tensor) -> np.ndarray:
    return rows.numpy() if rows.dtype == torch.float32 else rows.float().numpy()
