"""Run a server until a signal stops it, with limits on slow connections."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from regard.errors import RegardError

LOOPBACK = "127.0.0.1"
IDLE = 20  # seconds that an idle connection is kept, and that a request may take to arrive


class PortError(RegardError):
    """The port cannot be used."""


class Punctual(H11Protocol):
    """Closes connections whose requests do not arrive in time, which h11 would wait for without end."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._late = self.loop.call_later(IDLE, self._close_if_silent)

    def connection_lost(self, exc: Exception | None) -> None:
        self._late.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._late.cancel()
        self._late = self.loop.call_later(IDLE, self._close_if_silent)

    def _close_if_silent(self) -> None:
        """Close unless a request is being answered, which has limits of its own."""
        cycle: Any = self.cycle
        if cycle is None or cycle.response_complete:
            self.transport.abort()


def serve(
    application: Callable[[list[str]], ASGIApp],
    port: int = 0,
    ready: Callable[[str], None] = print,
    started: Callable[[Callable[[], None]], None] | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM, on this machine alone; at any free port for 0.

    Args:
        application: makes the application for the values of Host that are this server.
        ready: called with the address.
        started: called with a function that stops the server, from any thread.

    Raises:
        PortError: the port is used by another program.
    """
    listening = listen(LOOPBACK, port)
    ready(f"http://{LOOPBACK}:{listening.getsockname()[1]}/")
    run(application(own_hosts(listening)), listening, started)


def own_hosts(listening: socket.socket) -> list[str]:
    """The values of Host by which this machine calls the server."""
    port = listening.getsockname()[1]
    return [f"{name}:{port}" for name in (LOOPBACK, "localhost")]


def run(
    application: ASGIApp,
    listening: socket.socket,
    started: Callable[[Callable[[], None]], None] | None = None,
) -> None:
    """Answer the requests that come to a socket until SIGINT or SIGTERM."""
    config = uvicorn.Config(
        application,
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=IDLE,
        timeout_graceful_shutdown=5,
        h11_max_incomplete_event_size=32 * 1024,
        ws="none",
        http=Punctual,
    )
    server = uvicorn.Server(config)

    def stop() -> None:
        server.should_exit = True

    if started is not None:
        started(stop)
    server.run(sockets=[listening])


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there.

    Raises:
        PortError: the port is used by another program, or the address is not one of this machine.
    """
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as fault:
        listening.close()
        raise PortError(
            f"port {port} of {host} cannot be used: {fault.strerror}; pass another one or leave out --port"
        ) from None
    listening.listen(128)
    return listening
