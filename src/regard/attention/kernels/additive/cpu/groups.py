"""Weights in groups of channels, as the sum over two groups is divided by one product.

    sum_h w_h / t_h = g sum_h 1 / s_h,   s_h = (g / w_h) t_h

g is a power of two, different for each group, that lets the product of its g / w_h start far below
1: t_h is at least 1, so what the product needs room for is on the upper side. No partial product of
two groups falls out of range for any order of the weights; at worst the four largest of a group
come first.
"""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

GROUP = 8  # channels of a g; two groups share one division
START: dict[Any, int] = {np.float32: -32, np.float64: -304}
GAP: dict[Any, int] = {np.float32: 36, np.float64: 68}  # weights below 2^-GAP of the largest are it
CEILINGS: dict[Any, float] = {np.float32: 2.0**120, np.float64: 2.0**1000}  # of a product of t


def arrange(weights: Array) -> tuple[Array, Array]:
    """The ratios g / w, and the turns of each two groups: from the first g to the second, the second g.

    weights: (entries, a multiple of 2 GROUP); the results have a row for each entry.
    """
    kind = weights.dtype.type
    tiny = float(np.finfo(kind).tiny)
    sizes = np.abs(weights).astype(np.float64)
    sizes = np.maximum(sizes, np.maximum(sizes.max(-1, keepdims=True) * 2.0 ** -GAP[kind], tiny))
    middles = np.log2(sizes).reshape(len(weights), -1, GROUP).sum(-1) / GROUP
    units = np.maximum(np.exp2(np.rint(middles + START[kind] / GROUP)), tiny)
    ratios = units.repeat(GROUP, -1) / np.copysign(sizes, weights)
    turns = units.copy()
    turns[:, ::2] /= units[:, 1::2]
    return ratios.astype(kind), turns.astype(kind)
