"""Run the server on this machine's own address until it is told to stop."""

from __future__ import annotations

import socket
from collections.abc import Callable

import uvicorn

from regard.errors import RegardError
from regard.explorer.server.app import Explorer, application

LOOPBACK = "127.0.0.1"
CONNECTIONS = 512
IDLE = 20  # seconds that an idle connection is kept


class PortError(RegardError):
    """The port cannot be used."""


def serve(explorer: Explorer, port: int = 0, ready: Callable[[str], None] = print) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        explorer: the models and runs.
        port: 0 for any free one.
        ready: called with the address when the server listens.

    Raises:
        PortError: the port is used by another program.
    """
    listening = _listen(port)
    port = listening.getsockname()[1]
    hosts = [f"{name}:{port}" for name in (LOOPBACK, "localhost")]
    config = uvicorn.Config(
        application(explorer, hosts),
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=IDLE,
        timeout_graceful_shutdown=5,
        h11_max_incomplete_event_size=32 * 1024,
        ws="none",
        http="h11",
    )
    ready(f"http://{LOOPBACK}:{port}/")
    uvicorn.Server(config).run(sockets=[listening])


def _listen(port: int) -> socket.socket:
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((LOOPBACK, port))
    except OSError as fault:
        listening.close()
        raise PortError(
            f"port {port} of {LOOPBACK} cannot be used: {fault.strerror}; pass another one or leave out --port"
        ) from None
    listening.listen(128)
    return listening
