"""A process ends with the one that started it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading

from tests.translation.training.ranks import PATIENCE, forked

from regard.translation.training.processes import end_now, end_with_parent


def test_the_end_is_called_when_the_parent_becomes_another():
    parents, ended = iter([7, 7, 7, 1]), threading.Event()
    watch = end_with_parent(ended.set, interval=0, parent=lambda: next(parents))
    watch.join(PATIENCE)
    assert ended.is_set()
    assert next(parents, None) is None


def test_nothing_ends_while_the_parent_lives():
    ended, looked = threading.Event(), threading.Semaphore(0)

    def parent() -> int:
        looked.release()
        return 1 if stop else 7

    stop = False
    watch = end_with_parent(ended.set, interval=0, parent=parent)
    for _ in range(50):
        assert looked.acquire(timeout=PATIENCE)
    assert not ended.is_set()
    stop = True
    watch.join(PATIENCE)


@forked
def test_a_process_ends_whose_parent_was_killed():
    """Every process of the chain holds the pipe open: it ends when the last of them has ended."""
    reading, writing = os.pipe()
    context = multiprocessing.get_context("fork")

    def orphan() -> None:
        end_with_parent(lambda: end_now(False), interval=0.01)
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
