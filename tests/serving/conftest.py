"""One server for each module of tests, in the process of the tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient
from tests.servers import served

from regard.serving.translations import Settings, application

HOST = "127.0.0.1:5000"
MODELS = ["es-en-tiny", "en-es"]


@pytest.fixture(scope="module")
def client(tmp_path_factory) -> Iterator[TestClient]:
    folder = tmp_path_factory.mktemp("downloads")
    app = application(Settings(MODELS, downloads=folder, hosts=[HOST]))
    with TestClient(app, base_url=f"http://{HOST}", raise_server_exceptions=False) as client:
        yield client


@pytest.fixture(scope="module")
def address(tmp_path_factory) -> Iterator[str]:
    """The address of a server for clients with sockets; it asks for no key."""
    folder = tmp_path_factory.mktemp("downloads")

    def make(host: str) -> Starlette:
        return application(Settings(MODELS, downloads=folder, hosts=[host]))

    with served(make, "health") as address:
        yield address
