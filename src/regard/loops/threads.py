"""Threads for the loops, which hold no interpreter lock: torch's own where they can be had.

After each parallel loop OpenMP's threads spin for some milliseconds, waiting for the next one. Threads
of our own would have to share the cores with them, so the loops run on the threads that spin. numba's
own pools are either not safe for two callers at a time or do not survive a fork; data loaders fork,
and servers call from many threads.
"""

import ctypes
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

Task = Callable[[], None]

_forked = False


def _remember() -> None:
    """Note a fork: OpenMP's threads do not survive it, and OpenMP would wait for them for ever."""
    global _forked
    _forked = True


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=_remember)


@cache
def _openmp() -> Any:
    """GOMP_parallel(function, data, threads, flags) of the library that torch has loaded, or None."""
    for path in sorted((Path(torch.__file__).parent / "lib").glob("libgomp*")):
        try:
            return ctypes.CDLL(str(path), mode=os.RTLD_NOLOAD).GOMP_parallel
        except (OSError, AttributeError):
            continue
    return None


_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def run(tasks: list[Task]) -> None:
    """Run all tasks, each once, on as many threads; raise the first error among them."""
    waiting, errors = deque(tasks), deque[BaseException]()

    def work(_: Any = None) -> None:
        while True:
            try:
                task = waiting.popleft()
            except IndexError:
                return
            try:
                task()
            except BaseException as error:  # it has no caller here: kept for the one outside
                errors.append(error)

    if len(tasks) < 2:
        work()
    elif _openmp() is not None and not _forked:
        _openmp()(_FUNCTION(work), None, ctypes.c_uint(len(tasks)), ctypes.c_uint(0))
    else:
        with ThreadPoolExecutor(len(tasks) - 1) as threads:
            for _ in tasks[1:]:
                threads.submit(work)
            work()
    if errors:
        raise errors[0]


def run_shares(rows: int, compute: Callable[[int, int], None], *, least: int) -> None:
    """Call compute(begin, end) for shares of the rows, on torch's threads; a share has `least` rows or more."""
    workers = min(torch.get_num_threads(), rows // least)
    if workers < 2:
        compute(0, rows)
    else:
        run([partial(compute, begin, end) for begin, end in split(rows, workers)])


def split(items: int, workers: int) -> list[tuple[int, int]]:
    """`items` in at most `workers` runs of nearly equal length, none empty."""
    workers = max(1, min(workers, items))
    cuts = [items * k // workers for k in range(workers + 1)]
    return list(pairwise(cuts))
