"""Ends a process when its parent has ended: torchrun that is killed by SIGKILL does not end its processes."""

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
        interval: seconds between two checks.
        parent: returns the id of the parent; it changes when the parent has ended.
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
    """End this process at once because its parent has ended. The `first` of several processes prints a message."""
    if first:
        with suppress(OSError):  # standard error may be closed, too
            os.write(
                2,
                b"error: torchrun has ended: continue from the newest checkpoint with --resume\n",
            )
    os._exit(1)
