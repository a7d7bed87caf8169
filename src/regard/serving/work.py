"""One thread that computes, with a short queue before it: a model is never run by two requests at a time."""

import asyncio
from asyncio import FIRST_COMPLETED
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any, TypeVar

from starlette.requests import Request

from regard.serving.errors import Cancelled, Refused, client_leaves

WAITING = 64  # requests in the queue
SECONDS = 60.0  # that a request waits and computes at most

T = TypeVar("T")


class Work:
    """A queue of functions for one thread."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "work")
        self._waiting = 0

    async def run(self, request: Request, call: Callable[[Callable[[], None]], T]) -> T:
        """The result of `call(check)`; `check()` raises `Cancelled` once the client has left.

        Raises:
            Refused: too many requests wait (503), or this one took too long.
        """
        if self._waiting >= WAITING:
            raise Refused(503, "the server has too much to do: try again in a moment")
        client_left = Event()

        def check() -> None:
            if client_left.is_set():
                raise Cancelled

        def checked() -> T:
            check()
            return call(check)

        self._waiting += 1
        future = asyncio.wrap_future(self._thread.submit(checked))
        future.add_done_callback(self._finished)
        leaving = asyncio.ensure_future(client_leaves(request))
        try:
            either: set[asyncio.Future[Any]] = {future, leaving}
            done, _ = await asyncio.wait(either, timeout=SECONDS, return_when=FIRST_COMPLETED)
        finally:
            client_left.set()
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
