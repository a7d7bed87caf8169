"""Errors of a training that ran out of memory: they name the keys to lower."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from regard.errors import TrainingError, ran_out_of_memory


@contextmanager
def told(doing: str, lower: str) -> Iterator[None]:
    """Raise `TrainingError` when memory runs out in the block, naming the work (`doing`) and the keys to lower."""
    try:
        yield
    except (MemoryError, RuntimeError) as fault:
        if not ran_out_of_memory(fault):
            raise
        raise TrainingError(f"out of memory {doing}: lower {lower}") from None


def some(rows: NDArray[np.int64]) -> str:
    """The first of the rows of a batch, for messages."""
    return ", ".join(str(int(row)) for row in rows[:5]) + ", ..."
