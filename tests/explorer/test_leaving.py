"""A search ends when the client that asked for it has left."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from regard.explorer.server.errors import Refused
from regard.explorer.server.work import Cancelled, Work
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


def test_a_request_that_the_stopping_server_cancels_is_refused_and_its_work_ends():
    """Else the server would print the cancellation as a failure."""

    class Patient:
        async def receive(self) -> dict[str, str]:
            await asyncio.sleep(60)
            return {"type": "http.disconnect"}

    ended = []

    def call(check: Callable[[], None]) -> None:
        try:
            while True:
                check()
                time.sleep(0.01)
        except Cancelled:
            ended.append(True)
            raise

    async def stopped(work: Work) -> None:
        request = asyncio.ensure_future(work.run(Patient(), call))
        await asyncio.sleep(0.1)
        request.cancel()
        with pytest.raises(Refused, match="the server is stopping"):
            await request

    work = Work()
    asyncio.run(stopped(work))
    work.close()
    assert ended
