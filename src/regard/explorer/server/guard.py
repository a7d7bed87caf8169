"""What every request must pass: it came to this machine by its own name, from our own page, and is small."""

import asyncio
import json
from collections.abc import Iterable
from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

BODY = 256 * 1024  # bytes of the largest request
ADDRESS = 8192  # bytes of the longest address
OPEN = 128  # requests that are answered at a time, and as many that arrive
SLOW = 20.0  # seconds in which a whole request must arrive, and the next part of an answer be taken
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]


class _CrowdedOutError(Exception):
    """A request was ended because too many others arrived."""


class Guard:
    """Refuses foreign hosts (DNS rebinding) and origins, other content than JSON, and long bodies.

    `hosts` are the values of Host that are this server: "127.0.0.1:8000" ...
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str]) -> None:
        self._app, self._hosts, self._open = app, frozenset(hosts), 0
        # Deadlines of the bodies that arrive, oldest first.
        self._arriving: list[asyncio.Timeout] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            else:
                await receive()
                await send({"type": "websocket.close", "code": 1008})
            return
        named = _named(send)
        refusal = self._refusal(scope)
        if refusal is not None:
            await _refuse(named, *refusal)
            return
        try:
            await self._answer(scope, receive, named)
        except asyncio.CancelledError:
            # The server is stopping, and would report this as a failure. It cancels the refusal, too, if there is no
            # time left, and raises RuntimeError if an answer has begun.
            with suppress(asyncio.CancelledError, RuntimeError):
                await _refuse(named, 503, "the server is stopping")

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await self._arrived(receive) if scope["method"] == "POST" else b""
        except _CrowdedOutError:
            await _refuse(send, 503, "too many requests arrive, and this one was the slowest")
            return
        except TimeoutError:
            await _refuse(send, 408, f"the request did not arrive within {SLOW:.0f} seconds")
            return
        if body is None:
            await _refuse(send, 413, f"the request is longer than {BODY} bytes")
            return
        if self._open >= OPEN:
            await _refuse(send, 503, "the server has too much to do: try again in a moment")
            return
        self._open += 1
        try:
            await self._app(scope, _replayed(body, receive), send)
        finally:
            self._open -= 1

    async def _arrived(self, receive: Receive) -> bytes | None:
        """The whole body; None if it is too long. Where too many arrive, the oldest is the slowest, and ends.

        Raises:
            _CrowdedOutError: it was the oldest.
            TimeoutError: it did not arrive in time.
        """
        deadline = asyncio.timeout(SLOW)
        try:
            async with deadline:
                # An expired one ends in this turn of the loop, and cannot be ended again.
                waiting = [each for each in self._arriving if not each.expired()]
                if len(waiting) >= OPEN:
                    self._arriving.remove(waiting[0])
                    waiting[0].reschedule(asyncio.get_running_loop().time())
                self._arriving.append(deadline)
                return await _body(receive)
        except TimeoutError:
            if deadline not in self._arriving:
                raise _CrowdedOutError from None
            raise
        finally:
            if deadline in self._arriving:
                self._arriving.remove(deadline)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        if len(scope.get("raw_path", b"")) + len(scope["query_string"]) > ADDRESS:
            return 414, f"the address is longer than {ADDRESS} bytes"
        headers: dict[bytes, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name, []).append(value.decode("latin-1"))
        hosts = headers.get(b"host", [])
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return (
                421,
                "this server answers on its own address alone: open the address that it printed",
            )
        for origin in headers.get(b"origin", []):
            if origin.removeprefix("http://").lower() not in self._hosts:
                return 403, "the request comes from a page of another site"
        if headers.get(b"sec-fetch-site", ["same-origin"])[0] not in ("same-origin", "none"):
            return 403, "the request comes from a page of another site"
        if scope["method"] == "POST":
            kind = headers.get(b"content-type", [""])[0].split(";")[0].strip().lower()
            if kind != "application/json":
                return 415, "send the request as application/json"
            length = headers.get(b"content-length", ["0"])[0]
            if length.isdigit() and int(length) > BODY:
                return 413, f"the request has {length} bytes: at most {BODY} are read"
        return None


def _named(send: Send) -> Send:
    """A `send` that adds the headers of every answer."""

    async def adding(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", []), *HEADERS]}
        await asyncio.wait_for(send(message), SLOW)

    return adding


async def _body(receive: Receive) -> bytes | None:
    """The whole body; None if it is too long."""
    chunks, size = [], 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return b""
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > BODY:
            return None
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body that was read, and then what follows: the client's leaving."""
    sent = False

    async def replay() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


async def _refuse(send: Send, status: int, reason: str) -> None:
    body = json.dumps({"error": reason}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ] + [(b"retry-after", b"1")] * (status == 503)
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
