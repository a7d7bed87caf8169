"""A search ends when the client that asked for it has left."""

from __future__ import annotations

import pytest

from regard.explorer.translating import explore
from regard.serving.errors import Cancelled
from regard.translation.translator import Translator
from regard.watching.edits import Hard


@pytest.mark.parametrize("edits", [{}, {"decoder.1.cross": [Hard()]}], ids=["plain", "edited"])
def test_a_running_search_stops_at_the_step_at_which_its_client_has_left(edits):
    translator = Translator.open("es-en-tiny")
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
