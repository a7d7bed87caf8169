"""A process ends with the one that started it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading

from tests.translation.training.ranks import PATIENCE, forked

from regard.translation.training.processes import end_with_parent


@forked
def test_a_process_ends_whose_parent_was_killed():
    """Every process of the chain holds the pipe open: it ends when the last of them has ended."""
    reading, writing = os.pipe()
    context = multiprocessing.get_context("fork")

    def orphan() -> None:
        end_with_parent(is_first=False)
        os.write(writing, b"here")
        threading.Event().wait()

    def parent() -> None:
        os.close(reading)
        context.Process(target=orphan).start()
        threading.Event().wait()

    started = context.Process(target=parent)
    started.start()
    os.close(writing)
    assert os.read(reading, 4) == b"here"
    assert started.pid is not None
    os.kill(started.pid, signal.SIGKILL)
    started.join(PATIENCE)
    assert os.read(reading, 1) == b""
    os.close(reading)
