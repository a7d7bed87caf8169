"""The C library's allocator, set to keep freed memory for the next step."""

from __future__ import annotations

import ctypes
import os

# mallopt(3): parameters of the GNU C library.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4
_LARGEST, _MORE_AT_A_TIME = 2**31 - 1, 64 << 20
_VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_MMAP_MAX_", "GLIBC_TUNABLES")


def keep() -> bool:
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
