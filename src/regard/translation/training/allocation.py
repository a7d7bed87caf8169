"""Memory that a training has once is not handed back and asked for anew at every step."""

from __future__ import annotations

import ctypes
import os

# mallopt(3): parameters of the GNU C library.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4
_LARGEST, _MORE_AT_A_TIME = 2**31 - 1, 64 << 20
_VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_MMAP_MAX_", "GLIBC_TUNABLES")


def keep() -> bool:
    """Keep freed memory in this process for the next step, where the C library is GNU's; whether it will.

    By default large blocks go back to the system when they are freed, and each page of the next one costs a
    fault and 4 KiB of zeros: a tenth of a step and more (docs/training.md). For a process whose work is
    training. Left alone where the environment says how memory is allocated.
    """
    if any(name in os.environ for name in _VARIABLES):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # another C library, or none to be asked
        return False
    wanted = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, _LARGEST), (_TOP_PAD, _MORE_AT_A_TIME))
    done = [bool(mallopt(parameter, value)) for parameter, value in wanted]
    return all(done)
