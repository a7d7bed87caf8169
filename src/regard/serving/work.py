"""One thread that computes, with a short queue before it: a model is never run by two requests at a time."""

import asyncio
from asyncio import FIRST_COMPLETED
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any, NamedTuple, TypeVar

from starlette.requests import Request

from regard.serving.errors import Cancelled, Refused, client_leaves

WAITING = 64  # requests in the queue
SECONDS = 60.0  # that a request waits and computes at most

T = TypeVar("T")


class Progress(NamedTuple):
    """The task that the thread computes now, and how far it is."""

    doing: str = ""
    done: int = 0
    of: int = 0


class Task:
    """A computation calls it from time to time: it notes the progress, or raises `Cancelled` if the client has left."""

    def __init__(self, note: Callable[[Progress], None]) -> None:
        self.left, self._note = Event(), note

    def __call__(self, doing: str = "", done: int = 0, of: int = 0) -> None:
        if self.left.is_set():
            raise Cancelled
        if doing:
            self._note(Progress(doing, done, of))


class Work:
    """A queue of functions for one thread."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "work")
        self._waiting = 0
        self.progress = Progress()

    def _note(self, progress: Progress) -> None:
        self.progress = progress

    @property
    def waiting(self) -> int:
        """The requests that wait or are computed."""
        return self._waiting

    async def run(
        self, request: Request, call: Callable[[Task], T], seconds: float | None = SECONDS
    ) -> T:
        """The result of `call(task)`; `task()` raises `Cancelled` once the client has left.

        `seconds` bounds how long the request waits and computes; None: as long as the client waits.

        Raises:
            Refused: too many requests wait (503), or this one took too long.
        """
        if self._waiting >= WAITING:
            raise Refused(503, "the server has too much to do: try again in a moment")
        task = Task(self._note)

        def checked() -> T:
            task()
            self.progress = Progress()
            try:
                return call(task)
            finally:
                self.progress = Progress()

        self._waiting += 1
        future = asyncio.wrap_future(self._thread.submit(checked))
        future.add_done_callback(self._finished)
        leaving = asyncio.ensure_future(client_leaves(request))
        try:
            either: set[asyncio.Future[Any]] = {future, leaving}
            done, _ = await asyncio.wait(either, timeout=seconds, return_when=FIRST_COMPLETED)
        finally:
            task.left.set()
            leaving.cancel()
        if future in done:
            return future.result()
        if leaving in done:
            raise Cancelled
        raise Refused(503, f"the request took more than {SECONDS:.0f} seconds")

    def _finished(self, future: asyncio.Future[T]) -> None:
        self._waiting -= 1
        if not future.cancelled():
            future.exception()  # it was reported, or its client has left

    def close(self) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)
