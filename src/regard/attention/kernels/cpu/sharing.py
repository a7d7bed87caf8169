"""Rows shared out among torch's threads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from regard.attention.kernels.cpu.pool import run, split

__all__ = ["share"]

GRAIN = 1 << 18  # numbers that are worth a thread; measured


def share(call: Callable[[int, int], None], first: int, last: int, numbers: int) -> None:
    """Call with runs of rows from `first` to `last`, which have so many numbers to go through."""
    workers = min(torch.get_num_threads(), numbers // GRAIN)
    if workers < 2:
        call(first, last)
    else:
        run([partial(call, first + a, first + b) for a, b in split(last - first, workers)])
