"""The limits of every server: deadlines of bodies, room for quick clients, sizes, origins."""

from __future__ import annotations

import asyncio

from starlette.types import Message, Receive, Scope, Send

from regard.serving import guard
from regard.serving.guard import BODY, Guard

HOST = "127.0.0.1:8000"


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


def test_a_request_that_the_stopping_server_cancels_is_refused(run_async):
    """Else the server would print the cancellation as a failure."""
    sent = []

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(60)

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        sent.append(message)

    async def stopped() -> None:
        scope = {
            "type": "http",
            "method": "GET",
            "query_string": b"",
            "headers": [(b"host", b"here")],
        }
        answer = asyncio.ensure_future(Guard(slow, ["here"])(scope, receive, send))
        await asyncio.sleep(0.1)
        answer.cancel()
        await answer

    run_async(stopped())
    assert sent[0]["status"] == 503
    assert b"the server is stopping" in sent[1]["body"]
