"""The server answers its own page alone, in strict JSON, and nothing else of this machine."""

from __future__ import annotations

import asyncio

import pytest
from starlette.testclient import TestClient

from regard.explorer.server import Explorer, Models, application, guard
from regard.explorer.server.guard import BODY, Guard

HOST = "127.0.0.1:8000"


@pytest.fixture(scope="module")
def client():
    app = application(Explorer(Models({"es-en": "es-en"})), [HOST])
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


class Clients:
    """Requests to a guard before an application that answers 200."""

    def __init__(self) -> None:
        async def app(scope, receive, send) -> None:
            await receive()
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b""})

        self.guard, self.waiting = Guard(app, [HOST]), 0

    async def ask(self, method: str, parts=(b"",), pause: float = 0, last: bool = True) -> int:
        """The status of a request whose body arrives in parts; without `last` its end never comes."""
        left, statuses = list(parts), []

        async def receive() -> dict[str, object]:
            self.waiting += 1
            if not left:
                await asyncio.Event().wait()
            await asyncio.sleep(pause)
            more = len(left) > 1 or not last
            return {"type": "http.request", "body": left.pop(0), "more_body": more}

        async def send(message) -> None:
            statuses.append(message.get("status"))

        headers = [(b"host", HOST.encode()), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": method, "query_string": b"", "headers": headers}
        await self.guard(scope, receive, send)
        return statuses[0]


def test_a_body_has_one_deadline_and_not_one_for_each_part(monkeypatch, run_async):
    monkeypatch.setattr(guard, "SLOW", 0.2)
    clients, parts = Clients(), [b"a"] * 100
    assert run_async(clients.ask("POST", parts, pause=0.05)) == 408
    assert 1 < clients.waiting < 100  # parts arrived, each in time
    assert run_async(Clients().ask("POST", parts)) == 200


def test_slow_bodies_take_no_places_from_others(monkeypatch, run_async):
    monkeypatch.setattr(guard, "OPEN", 3)

    async def crowd() -> tuple[list[int], list[int]]:
        clients = Clients()
        slow = [asyncio.create_task(clients.ask("POST", [b"a"], last=False)) for _ in range(3)]
        while clients.waiting < 6:  # each has sent one byte, and is waited for again
            await asyncio.sleep(0)
        assert not any(task.done() for task in slow)
        quick = [await clients.ask("GET"), await clients.ask("POST", [b"{", b"}"])]
        (ended, *others) = slow
        status = await ended  # the oldest made room
        assert not any(task.done() for task in others)
        for task in others:
            task.cancel()
        return quick, [status, *await asyncio.gather(*others)]

    quick, slow = run_async(crowd())
    assert quick == [200, 200]
    assert slow == [503, 503, 503]


def test_a_request_that_comes_as_the_deadlines_of_others_expire_is_answered(monkeypatch, run_async):
    monkeypatch.setattr(guard, "OPEN", 3)

    async def crowd() -> tuple[int, list[int]]:
        clients = Clients()
        slow = [asyncio.create_task(clients.ask("POST", [b"a"], last=False)) for _ in range(3)]
        while clients.waiting < 6:
            await asyncio.sleep(0)
        quick = asyncio.create_task(clients.ask("POST", [b"{}"]))
        for deadline in clients.guard._arriving:  # all in the turn of the loop in which it comes
            deadline._on_timeout()
        return await quick, await asyncio.gather(*slow)

    assert run_async(crowd()) == (200, [408, 408, 408])


def test_one_that_makes_room_hears_why(monkeypatch, run_async):
    monkeypatch.setattr(guard, "OPEN", 1)
    told = []

    async def refuse(send, status: int, reason: str) -> None:
        told.append((status, reason))
        await send({"type": "http.response.start", "status": status})

    monkeypatch.setattr(guard, "_refuse", refuse)

    async def crowd() -> None:
        clients = Clients()
        slow = asyncio.create_task(clients.ask("POST", [b"a"], last=False))
        while clients.waiting < 2:
            await asyncio.sleep(0)
        assert await clients.ask("POST", [b"{}"]) == 200
        assert await slow == 503

    run_async(crowd())
    assert told == [(503, "too many requests arrive, and this one was the slowest")]


def test_a_body_is_answered_as_it_arrived(run_async):
    assert run_async(Clients().ask("POST", [b"a", b"b"])) == 200
    assert run_async(Clients().ask("POST", [b"a" * BODY, b"b"])) == 413
