"""Weights in pairs, the larger of each in front: what the sum over channels divides by.

    w1 / t1 + w2 / t2 = (t2 + w2 s) / (s t2),   s = t1 / w1,   |w1| >= |w2|

Weights are counted in a unit that makes the largest about 2^SHIFT, so that a product of s and t
starts below 1 and has room on both sides. A pair that is nothing beside the largest, or lies beyond
the channels, is given the weights LEAST and -LEAST: they cancel, or are far below rounding.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]

GROUP = 8  # channels that share one division
SHIFT = 24
LEAST: dict[Any, float] = {np.float32: 2.0**-16, np.float64: 2.0**-80}
# A group's halves and the whole may reach this; a pair can be 2^25 larger, a numerator 2^27.
LIMITS: dict[Any, float] = {np.float32: 2.0**74, np.float64: 2.0**900}
CEILINGS: dict[Any, float] = {np.float32: 2.0**120, np.float64: 2.0**1000}


class Pairs(NamedTuple):
    """One row for each entry of the weights."""

    scaled: Array  # w / unit
    order: Array  # of each pair, its channels within the group: the larger first
    inverse: Array  # 1 / w of the larger
    bounds: Array  # the product of two |inverse|: what half a group's t are multiplied by
    unit: Array  # a power of two


def arrange(weights: Array) -> Pairs:
    """From weights (entries, a multiple of GROUP)."""
    entries, kind = len(weights), weights.dtype.type
    most = np.abs(weights).max(-1, initial=0, keepdims=True)
    unit = np.ldexp(kind(1), np.frexp(np.maximum(most, np.finfo(kind).tiny))[1] - SHIFT)
    unit = np.maximum(unit, np.finfo(kind).tiny).astype(kind)
    pairs = (weights / unit).reshape(entries, -1, 2)
    swapped = np.abs(pairs[..., 1]) > np.abs(pairs[..., 0])
    first = np.where(swapped, pairs[..., 1], pairs[..., 0])
    least = kind(LEAST[kind])
    none = np.abs(first) < least
    pairs[none] = (least, -least)
    inverse = 1 / np.where(none, least, first)
    place = 2 * (np.arange(swapped.shape[1]) % (GROUP // 2))
    order = np.stack((place + swapped, place + ~swapped), -1)
    return Pairs(
        pairs.reshape(entries, -1),
        order.reshape(entries, -1).astype(np.int64),
        inverse,
        np.abs(inverse[:, ::2] * inverse[:, 1::2]),
        unit[:, 0],
    )
