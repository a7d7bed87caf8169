"""One server for each module of tests, in the process of the tests."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.request import urlopen

import pytest
import uvicorn
from starlette.testclient import TestClient

from regard.serving.translations import Settings, application

HOST = "127.0.0.1:5000"
MODELS = ["es-en-tiny", "en-es"]


@pytest.fixture(scope="module")
def client(tmp_path_factory) -> Iterator[TestClient]:
    folder = tmp_path_factory.mktemp("downloads")
    app = application(Settings(MODELS, downloads=folder, hosts=[HOST]))
    with TestClient(app, base_url=f"http://{HOST}", raise_server_exceptions=False) as client:
        yield client


@contextmanager
def _served(settings: Callable[[str], Settings]) -> Iterator[str]:
    listening = socket.create_server(("127.0.0.1", 0))
    host = f"127.0.0.1:{listening.getsockname()[1]}"
    config = uvicorn.Config(application(settings(host)), log_level="warning", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    address = f"http://{host}/"
    for _ in range(100):
        try:
            with urlopen(address + "health", timeout=2):
                break
        except OSError:
            time.sleep(0.05)
    yield address
    server.should_exit = True
    thread.join(30)


@pytest.fixture(scope="module")
def address(tmp_path_factory) -> Iterator[str]:
    """The address of a server for clients with sockets; it asks for no key."""
    folder = tmp_path_factory.mktemp("downloads")
    with _served(lambda host: Settings(MODELS, downloads=folder, hosts=[host])) as address:
        yield address
