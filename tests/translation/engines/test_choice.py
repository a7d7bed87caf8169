"""int8 search is for models and processors that support it; for others, the error says why not."""

from __future__ import annotations

import pytest
from tests.translation.engines.test_compiled import small

from regard.errors import ConfigurationError
from regard.loops import availability as loops
from regard.translation.engines import choose, engine


def test_a_transformer_is_rounded():
    chosen = choose(small(), rounded=True)
    assert isinstance(chosen, engine.CompiledEngine)
    assert chosen.rounded


def test_other_precisions_are_refused():
    with pytest.raises(ConfigurationError, match="another precision"):
        choose(small().double(), rounded=True)


def test_loops_that_are_not_compiled_are_named(monkeypatch):
    monkeypatch.setenv(loops.OFF, "1")
    with pytest.raises(ConfigurationError, match="NUMBA_DISABLE_JIT"):
        choose(small(), rounded=True)
    assert choose(small()).name == "layers"


def test_hooks_and_unknown_layers_are_refused():
    hooked, model = small(), small(positions="rotary")
    hooked.output.register_forward_hook(lambda *_: None)
    with pytest.raises(ConfigurationError, match="calls no hooks"):
        choose(hooked, rounded=True)
    with pytest.raises(ConfigurationError, match="no rotary positions"):
        choose(model, rounded=True)


def test_where_nothing_can_be_kept_it_says_so(monkeypatch):
    monkeypatch.setattr(engine, "_can_be_kept", lambda: False)
    with pytest.raises(ConfigurationError, match="XDG_CACHE_HOME"):
        choose(small(), rounded=True)
