"""The memory of a training: freed memory is kept for the next step, and errors name the keys to lower."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray

from regard.errors import TrainingError

# mallopt(3): parameters of the GNU C library.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4
_LARGEST, _MORE_AT_A_TIME = 2**31 - 1, 64 << 20
_VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_MMAP_MAX_", "GLIBC_TUNABLES")
# Parts of the messages of the allocators of torch, of CUDA's libraries and of C++.
_SIGNS = re.compile(
    "out of memory|allocate memory|not enough memory|bad_alloc|alloc_failed|defaultcpuallocator",
    re.I,
)


def keep_freed() -> bool:
    """Keep freed memory in this process, if the C library is GNU's; returns whether it does.

    By default large blocks are returned to the system when they are freed. Each page of the next block then costs a
    page fault and is filled with zeros, which takes a tenth of a step or more (docs/training.md). Nothing is changed
    if an environment variable configures the allocator.
    """
    if any(name in os.environ for name in _VARIABLES):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # another C library
        return False
    wanted = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, _LARGEST), (_TOP_PAD, _MORE_AT_A_TIME))
    done = [bool(mallopt(parameter, value)) for parameter, value in wanted]
    return all(done)


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
