"""Corpora of unequal worth: how often a pass takes each of their pairs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def drawn(weights: NDArray[np.float64], random: np.random.Generator) -> NDArray[np.int64]:
    """The rows of one pass: each as often as the whole part of its weight, once more with the odds of the rest.

    >>> drawn(np.array([2.0, 1.0]), np.random.default_rng(1)).tolist()
    [0, 0, 1]
    """
    times = np.floor(weights)
    times += random.random(len(weights)) < weights - times
    if (
        len(times) and not times.any()
    ):  # small weights and few rows: a pass has something to learn from
        times[random.integers(len(times))] = 1
    return np.repeat(np.arange(len(weights)), times.astype(np.int64))
