"""Weights of corpora: the number of times that one pass takes each of their pairs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def drawn(weights: NDArray[np.float64], random: np.random.Generator) -> NDArray[np.int64]:
    """The rows of one pass. A row of weight 2.3 occurs twice, and a third time with probability 0.3.

    >>> drawn(np.array([2.0, 1.0]), np.random.default_rng(1)).tolist()
    [0, 0, 1]
    """
    times = np.floor(weights)
    times += random.random(len(weights)) < weights - times
    if len(times) and not times.any():  # with small weights and few rows, a pass still has a row
        times[random.integers(len(times))] = 1
    return np.repeat(np.arange(len(weights)), times.astype(np.int64))
