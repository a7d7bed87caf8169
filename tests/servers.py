"""A server in a thread of the process of the tests."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.request import urlopen


@contextmanager
def served(make: Callable[[str], Any], health: str) -> Iterator[str]:
    """The address of the application that `make` makes for a host, once its path `health` answers."""
    import uvicorn

    listening = socket.create_server(("127.0.0.1", 0))
    host = f"127.0.0.1:{listening.getsockname()[1]}"
    server = uvicorn.Server(uvicorn.Config(make(host), log_level="warning", ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    for _ in range(100):
        try:
            with urlopen(f"http://{host}/{health}", timeout=2):
                break
        except OSError:
            time.sleep(0.05)
    yield f"http://{host}/"
    server.should_exit = True
    thread.join(30)
