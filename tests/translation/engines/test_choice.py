"""The layers run models and machines that compiled search does not support, and the engine says why."""

from __future__ import annotations

import pytest
from tests.translation.engines.test_compiled import small

from regard.loops import availability as loops
from regard.translation.engines import choose, engine
from regard.translation.translator import Translator


def test_loops_that_are_not_compiled_are_named(monkeypatch):
    monkeypatch.setenv(loops.OFF, "1")
    layers = choose(small())
    assert (layers.name, layers.loops) == ("layers", False)
    assert "NUMBA_DISABLE_JIT" in layers.reason


def test_hooks_positions_and_precisions_are_named():
    hooked = small()
    hooked.output.register_forward_hook(lambda *_: None)
    assert "calls no hooks" in choose(hooked).reason
    assert "no rotary positions" in choose(small(positions="rotary")).reason
    assert "another precision" in choose(small().double()).reason


def test_where_nothing_can_be_kept_it_says_so(monkeypatch):
    monkeypatch.setattr(engine, "_can_be_kept", lambda: False)
    assert "XDG_CACHE_HOME" in choose(small()).reason


def test_the_removed_argument_of_refresh_warns():
    spanish = Translator.open("es-en-tiny")
    with pytest.warns(DeprecationWarning, match="rounded of Translator has no effect any more"):
        spanish.refresh(rounded=True)
    assert spanish.engine.name == "compiled"
