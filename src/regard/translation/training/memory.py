"""Memory of a training on the processor: kept for the next batch instead of given back to the system."""

import ctypes
import os
import platform

# Parameters of mallopt, from glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4


def keep() -> None:
    """Let the C library keep freed memory, and let torch ask for pages of 2 MB. Call it before the first large tensor.

    By default glibc gives every large tensor back to the system when it is freed, and the system clears each page of
    the next one: a quarter of the time of a training step. Other C libraries are left as they are.
    """
    if platform.libc_ver()[0] != "glibc":
        return
    mallopt = ctypes.CDLL(None).mallopt
    mallopt(_MMAP_MAX, 0)  # large blocks come from the heap, too
    mallopt(_TRIM_THRESHOLD, -1)  # and its end is never given back
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
