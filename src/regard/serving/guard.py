"""What every request must pass: it came by a name of this server, from our own page, and is small."""

import asyncio
from collections.abc import Collection
from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.serving.errors import refusal

BODY = 256 * 1024  # bytes of the largest request, unless a server takes more
ADDRESS = 8192  # bytes of the longest address, unless a server takes more
JSON = "application/json"
OPEN = (
    128  # requests that are answered at a time, unless a server takes more, and as many that arrive
)
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
    """Refuses foreign hosts (DNS rebinding) and origins, content of other types, and long bodies.

    Args:
        hosts: the values of Host that are this server, "127.0.0.1:8000" ...; None for any, of a server whose requests
            need a key.
        types: the content types of bodies that are read.
        body, address: the most bytes of a body and of an address.
        crowd: the most requests that are answered at a time, and as many that arrive.
    """

    def __init__(
        self,
        app: ASGIApp,
        hosts: Collection[str] | None,
        types: Collection[str] = (JSON,),
        body: int = BODY,
        address: int = ADDRESS,
        crowd: int | None = None,
    ) -> None:
        self._app, self._hosts, self._types, self._open = app, hosts, types, 0
        self._body, self._address = body, address
        self._crowd = OPEN if crowd is None else crowd
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
        objection = self._objection(scope)
        if objection is not None:
            await _refuse(named, *objection)
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
            await _refuse(send, 413, f"the request is longer than {self._body} bytes")
            return
        if self._open >= self._crowd:
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
                if len(waiting) >= self._crowd:
                    self._arriving.remove(waiting[0])
                    waiting[0].reschedule(asyncio.get_running_loop().time())
                self._arriving.append(deadline)
                return await _body(receive, self._body)
        except TimeoutError:
            if deadline not in self._arriving:
                raise _CrowdedOutError from None
            raise
        finally:
            if deadline in self._arriving:
                self._arriving.remove(deadline)

    def _objection(self, scope: Scope) -> tuple[int, str] | None:
        if len(scope.get("raw_path", b"")) + len(scope["query_string"]) > self._address:
            return 414, f"the address is longer than {self._address} bytes"
        headers: dict[bytes, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name, []).append(value.decode("latin-1").lower())
        hosts = headers.get(b"host", [])
        if len(hosts) != 1 or (self._hosts is not None and hosts[0] not in self._hosts):
            return (
                421,
                "this server answers on its own address alone: open the address that it printed",
            )
        for origin in headers.get(b"origin", []):
            if origin.partition("://")[2] not in (self._hosts or hosts):
                return 403, "the request comes from a page of another site"
        if headers.get(b"sec-fetch-site", ["same-origin"])[0] not in ("same-origin", "none"):
            return 403, "the request comes from a page of another site"
        if scope["method"] == "POST":
            length = headers.get(b"content-length", ["0"])[0]
            content_type = headers.get(b"content-type", [""])[0].split(";")[0].strip()
            is_empty = length == "0" and b"transfer-encoding" not in headers
            if content_type not in self._types and not (is_empty and "" in self._types):
                return 415, f"send the request as {' or '.join(filter(None, self._types))}"
            if length.isdigit() and int(length) > self._body:
                return 413, f"the request has {length} bytes: at most {self._body} are read"
        return None


def _named(send: Send) -> Send:
    """A `send` that adds the headers of every answer."""

    async def adding(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", []), *HEADERS]}
        await asyncio.wait_for(send(message), SLOW)

    return adding


async def _body(receive: Receive, longest: int) -> bytes | None:
    """The whole body; None if it is too long."""
    chunks, size = [], 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return b""
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > longest:
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
    answer = refusal(reason, status, {"connection": "close"})
    await send({"type": "http.response.start", "status": status, "headers": answer.raw_headers})
    await send({"type": "http.response.body", "body": answer.body})
