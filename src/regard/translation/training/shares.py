"""Which sentences of a batch each of several processes takes."""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray


def share(costs: NDArray[np.int64], rank: int, size: int) -> NDArray[np.int64]:
    """The positions in a batch that one of `size` processes takes, in the order of the batch.

    Each sentence goes to the process that has the fewest tokens so far, the longest sentence first (Graham 1969,
    "Bounds on multiprocessing timing anomalies"). No two processes differ by more than the longest sentence.

    Args:
        costs: tokens of each sentence pair.
        rank: the process, from 0.
        size: the number of processes.

    Example:
        >>> costs = np.array([9, 5, 4, 3, 2])
        >>> share(costs, 0, 2).tolist(), share(costs, 1, 2).tolist()
        ([0, 3], [1, 2, 4])
    """
    if size == 1:
        return np.arange(len(costs))
    loads = [(0, process) for process in range(size)]
    taken = []
    for place in np.argsort(-costs, kind="stable"):
        load, process = loads[0]
        heapq.heapreplace(loads, (load + int(costs[place]), process))
        if process == rank:
            taken.append(int(place))
    return np.array(sorted(taken), dtype=np.int64)
