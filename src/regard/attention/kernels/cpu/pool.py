"""Threads for the loops, which hold no interpreter lock.

numba's own pools are either not safe for two callers at a time or do not survive a fork; data
loaders fork, and servers call from many threads. Here the caller does a part of the work itself and
lends the rest to threads that any caller may use; a forked child starts threads of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from threading import Lock

Part = Callable[[], None]

_lock = Lock()
_pool: ThreadPoolExecutor | None = None
_size = 0


def _forget() -> None:
    """In a forked child: the threads were left behind, and the lock perhaps held."""
    global _lock, _pool, _size
    _lock, _pool, _size = Lock(), None, 0


os.register_at_fork(after_in_child=_forget)


def _threads(count: int) -> ThreadPoolExecutor:
    """A pool of at least this many threads. One that is outgrown ends when its work is done."""
    global _pool, _size
    with _lock:
        if _pool is None or _size < count:
            if _pool is not None:
                _pool.shutdown(wait=False)
            _pool, _size = ThreadPoolExecutor(count, thread_name_prefix="regard-kernel"), count
        return _pool


def _submit(parts: list[Part]) -> list[Future[None]]:
    try:
        pool = _threads(len(parts))
        return [pool.submit(part) for part in parts]
    except RuntimeError:  # outgrown by another caller a moment ago, or the interpreter is closing
        return []


def run(parts: list[Part]) -> None:
    """Run all parts, the first in this thread; the first error among them is raised."""
    lent = _submit(parts[1:]) if len(parts) > 1 else []
    for part in parts[:1] if lent else parts:
        part()
    for future in lent:
        future.result()


def split(items: int, workers: int) -> list[tuple[int, int]]:
    """`items` in at most `workers` runs of nearly equal length, none empty."""
    workers = max(1, min(workers, items))
    cuts = [items * k // workers for k in range(workers + 1)]
    return list(pairwise(cuts))
