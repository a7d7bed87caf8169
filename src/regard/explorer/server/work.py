"""One thread that computes, with a short queue before it: a model is never run by two requests at a time."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import TypeVar

from starlette.requests import Request

from regard.explorer.server.errors import Refused

WAITING = 64  # requests in the queue
SECONDS = 60.0  # that a request waits and computes at most
LOOK = 0.1  # seconds between two looks whether the client is still there

T = TypeVar("T")


class Cancelled(Exception):
    """The client left, so its work stops."""


class Work:
    """A queue of functions for one thread."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "explorer")
        self._waiting = 0

    async def run(self, request: Request, call: Callable[[Callable[[], None]], T]) -> T:
        """The result of `call(check)`; `check()` raises `Cancelled` once the client has left.

        Raises:
            Refused: too many requests wait (503), or this one took too long.
        """
        if self._waiting >= WAITING:
            raise Refused(503, "the server has too much to do: try again in a moment")
        left = Event()

        def check() -> None:
            if left.is_set():
                raise Cancelled

        def checked() -> T:
            check()
            return call(check)

        self._waiting += 1
        future = asyncio.wrap_future(self._thread.submit(checked))
        future.add_done_callback(self._finished)
        try:
            return await asyncio.wait_for(asyncio.shield(self._watched(request, future)), SECONDS)
        except TimeoutError:
            raise Refused(503, f"the request took more than {SECONDS:.0f} seconds") from None
        finally:
            left.set()

    async def _watched(self, request: Request, future: asyncio.Future[T]) -> T:
        while True:
            done, _ = await asyncio.wait([future], timeout=LOOK)
            if done:
                return future.result()
            if await request.is_disconnected():
                raise Cancelled

    def _finished(self, future: asyncio.Future[T]) -> None:
        self._waiting -= 1
        if not future.cancelled():
            future.exception()  # it was reported, or its client has left

    def close(self) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)
