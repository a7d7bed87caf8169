"""A search ends when the client that asked for it has left."""

from __future__ import annotations

import asyncio

import pytest
from starlette.types import Message, Receive, Scope, Send

from regard.explorer.server.guard import Guard
from regard.explorer.server.work import Cancelled
from regard.explorer.translating import explore
from regard.translation.translator import Translator
from regard.watching.edits import Hard


@pytest.mark.parametrize("edits", [{}, {"decoder.2.cross": [Hard()]}], ids=["plain", "edited"])
def test_a_running_search_stops_at_the_step_at_which_its_client_has_left(edits):
    translator = Translator.open("es-en")
    calls = 0

    def check() -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise Cancelled

    with pytest.raises(Cancelled):
        explore(translator, "El gato negro duerme en la silla.", edits=edits, check=check)
    assert calls == 3
    assert explore(translator, "El gato negro duerme.", edits=edits)[1].text


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
