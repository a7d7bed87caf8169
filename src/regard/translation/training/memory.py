"""Errors for a training that runs out of memory: they name the cause and the keys to lower."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import numpy as np
import torch
from numpy.typing import NDArray

from regard.errors import TrainingError
from regard.translation.text.batches import Batch

# Parts of the messages of the allocators of torch, of CUDA's libraries and of C++.
_SIGNS = (
    "out of memory",
    "allocate memory",
    "not enough memory",
    "bad_alloc",
    "alloc_failed",
    "defaultcpuallocator",
)


def ran_out(fault: BaseException) -> bool:
    """Whether an exception means that memory ran out.

    >>> ran_out(MemoryError()), ran_out(RuntimeError("unsupported memory format"))
    (True, False)
    """
    if isinstance(fault, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(fault).lower()
    return isinstance(fault, RuntimeError) and any(sign in text for sign in _SIGNS)


@contextmanager
def told(doing: str, lower: str) -> Iterator[None]:
    """Raise `TrainingError` when memory runs out in the block, naming the work (`doing`) and the keys to lower."""
    try:
        yield
    except (MemoryError, RuntimeError) as fault:
        if not ran_out(fault):
            raise
        raise TrainingError(f"out of memory {doing}: lower {lower}") from None


def on_batch(batch: Batch, step: int) -> AbstractContextManager[None]:
    """`told` for work on a batch."""
    return told(
        f"on a batch of {batch.source.shape[0]} sentences, {batch.source.shape[1]} source and "
        f"{batch.target_in.shape[1]} target positions (step {step}, rows {some(batch.rows)})",
        "training.batch_tokens or data.longest",
    )


def some(rows: NDArray[np.int64]) -> str:
    """The first of the rows of a batch, for messages."""
    return ", ".join(str(int(row)) for row in rows[:5]) + ", ..."
