"""The routes of the server, answered in the process of a notebook: requests and answers are messages of a widget."""

import asyncio
from collections.abc import Callable
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

from starlette.types import Message

from regard.explorer.prompting import LanguageModel
from regard.explorer.server.app import Explorer, application
from regard.explorer.server.models import Models

HOST = "notebook"
Send = Callable[[dict[str, Any], list[bytes]], None]


class Kernel:
    """Answers the requests of a widget for a model, in a thread of its own.

    Args:
        send: sends an answer: its number and status, and its body.
    """

    def __init__(self, language: LanguageModel, send: Send) -> None:
        self._app = application(Explorer(Models({}), languages=[language]), [HOST])
        self._send, self._loop = send, asyncio.new_event_loop()
        self._leaving: dict[int, asyncio.Event] = {}
        Thread(target=self._loop.run_forever, daemon=True, name="explorer").start()

    def take(self, content: dict[str, Any]) -> None:
        """Answer a request {id, path, method, body}; {id, leaving} ends it, because nobody waits for the answer."""
        number = int(content["id"])
        if content.get("leaving"):
            self._loop.call_soon_threadsafe(self._leave, number)
        else:
            asyncio.run_coroutine_threadsafe(self._answer(number, content), self._loop)

    def _leave(self, number: int) -> None:
        if number in self._leaving:
            self._leaving[number].set()

    async def _answer(self, number: int, content: dict[str, Any]) -> None:
        address = urlsplit(f"/{content['path']}")
        departure = self._leaving[number] = asyncio.Event()
        scope = {
            "type": "http",
            "method": content["method"],
            "path": address.path,
            "raw_path": address.path.encode(),
            "query_string": address.query.encode(),
            "headers": [(b"host", HOST.encode()), (b"content-type", b"application/json")],
        }
        body = [content.get("body", "").encode()]
        status, chunks = 500, []

        async def receive() -> Message:
            if body:
                return {"type": "http.request", "body": body.pop(), "more_body": False}
            await departure.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                chunks.append(message.get("body", b""))

        try:
            await self._app(scope, receive, send)
        finally:
            del self._leaving[number]
            self._send({"id": number, "status": status}, [b"".join(chunks)])
