"""The end of the process that started this one: torchrun killed by SIGKILL has no time to end its processes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress


def end_with_parent(
    end: Callable[[], object],
    interval: float = 1.0,
    parent: Callable[[], int] = os.getppid,
) -> threading.Thread:
    """Call `end` once the parent of this process has ended.

    Args:
        end: called in a thread of its own.
        interval: seconds between two looks.
        parent: the id of the parent; another one is that of a process that adopts orphans.
    """
    first = parent()

    def watch() -> None:
        while parent() == first:
            time.sleep(interval)
        end()

    thread = threading.Thread(target=watch, name="parent", daemon=True)
    thread.start()
    return thread


def end_now(first: bool) -> None:
    """End this process on the spot, as its parent has ended; the `first` of several says so."""
    if first:
        with suppress(OSError):  # standard error may have ended, too
            os.write(
                2,
                b"error: torchrun has ended: go on from the newest checkpoint with --resume\n",
            )
    os._exit(1)
