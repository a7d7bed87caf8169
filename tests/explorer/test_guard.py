"""The server answers its own page alone, in strict JSON, and nothing else of this machine."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from regard.explorer.server import Explorer, Models, application
from regard.serving.guard import BODY

HOST = "127.0.0.1:8000"


@pytest.fixture(scope="module")
def client():
    app = application(Explorer(Models({"es-en": "es-en-tiny"})), [HOST])
    with TestClient(app, base_url=f"http://{HOST}", raise_server_exceptions=False) as client:
        yield client


PATHS = ("/", "/explorer.js", "/explorer.css", "/healthz", "/api/row", "/nowhere")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.com"},
        {"Host": "127.0.0.1:9"},
        {"Origin": "http://evil.com"},
        {"Origin": "null"},
    ],
    ids=str,
)
def test_foreign_hosts_and_origins_are_refused_on_every_route(client, path, headers):
    answer = client.get(path, headers=headers)
    assert answer.status_code in (403, 421)
    assert "access-control-allow-origin" not in answer.headers
    assert answer.json()["error"]


@pytest.mark.parametrize("path", ["/", "/healthz", "/nowhere"])
def test_every_answer_has_the_policy(client, path):
    headers = client.get(path).headers
    assert "unsafe-inline" not in headers["content-security-policy"]
    assert "default-src 'none'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"


def test_a_body_of_another_type_is_refused(client):
    answer = client.post("/api/translate", content="{}", headers={"Content-Type": "text/plain"})
    assert answer.status_code == 415


def test_a_long_body_is_refused(client):
    def chunks():
        for _ in range(1 + BODY // 1000):
            yield b" " * 1000

    headers = {"Content-Type": "application/json"}
    assert client.post("/api/translate", content=chunks(), headers=headers).status_code == 413


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"{", "JSON"),
        (b"[]", "object"),
        (b"null", "object"),
        (b'{"model": NaN}', "JSON"),
        (b'{"text": "\\ud800"}', "JSON"),
        (b'{"text": "a", "text": "b"}', "JSON"),
        (b"[" * 100_000, "nested"),
        (b"\xff", "UTF-8"),
        (b"{}", "model"),
        (b'{"model": "es-en"}', "text"),
        (b'{"model": "es-en", "text": 4}', "text"),
        (b'{"model": "es-en", "text": "a\\u0000b"}', "text"),
        (b'{"model": "es-en", "text": "a", "beam": 1e9}', "beam"),
        (b'{"model": "../../etc", "text": "a"}', "model"),
        (b'{"model": "es-en", "text": "%s"}' % (b"a" * 5000), "text"),
    ],
)
def test_a_bad_request_is_refused_by_name(client, body, named):
    headers = {"Content-Type": "application/json"}
    answer = client.post("/api/translate", content=body, headers=headers)
    assert 400 <= answer.status_code < 500
    assert named in answer.json()["error"]


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "POST"])
def test_other_methods_are_refused(client, method):
    headers = {"Content-Type": "application/json"}
    assert client.request(method, "/healthz", headers=headers).status_code == 405


@pytest.mark.parametrize(
    ("lines", "named"),
    [("a", "list"), (["a"] * 9, "at most 8"), ([4], "lines"), (["a" * 5000], "lines has 5000")],
)
def test_bad_lines_are_refused_by_name(client, lines, named):
    answer = client.post("/api/lines", json={"model": "es-en", "lines": lines})
    assert 400 <= answer.status_code < 500
    assert named in answer.json()["error"]


def test_lines_are_translated_and_models_listed(client):
    options = {"model": "es-en", "lines": ["¿Dónde está el gato?", ""]}
    answer = client.post("/api/lines", json=options)
    assert answer.json() == {"translations": ["Where's the cat?", ""]}
    assert client.get("/api/models").json() == {"models": ["es-en"]}
