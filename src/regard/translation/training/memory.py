"""Errors of a training that ran out of memory: they name the keys to lower."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray

from regard.errors import TrainingError

# Parts of the messages of the allocators of torch, of CUDA's libraries and of C++.
_SIGNS = re.compile(
    "out of memory|allocate memory|not enough memory|bad_alloc|alloc_failed|defaultcpuallocator",
    re.I,
)


def ran_out(fault: BaseException) -> bool:
    """Whether an exception means that memory ran out.

    >>> ran_out(MemoryError()), ran_out(RuntimeError("unsupported memory format"))
    (True, False)
    """
    if isinstance(fault, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(fault, RuntimeError) and _SIGNS.search(str(fault)) is not None


@contextmanager
def told(doing: str, lower: str) -> Iterator[None]:
    """Raise `TrainingError` when memory runs out in the block, naming the work (`doing`) and the keys to lower."""
    try:
        yield
    except (MemoryError, RuntimeError) as fault:
        if not ran_out(fault):
            raise
        raise TrainingError(f"out of memory {doing}: lower {lower}") from None


def some(rows: NDArray[np.int64]) -> str:
    """The first of the rows of a batch, for messages."""
    return ", ".join(str(int(row)) for row in rows[:5]) + ", ..."
