"""Rounding to 8 bits is for models and processors that have it; others are told why not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.translation.models.test_planned import small

from regard.errors import ConfigurationError
from regard.loops import availability as loops
from regard.translation.models import compiling
from regard.translation.models.rounding import round_products


@pytest.fixture(autouse=True)
def loops_as_they_were() -> Iterator[None]:
    before = compiling._wanted
    yield
    compiling.want(before)


def test_a_transformer_is_rounded_and_its_loops_are_wanted():
    model = small()
    compiling.want(False)
    round_products(model)
    assert model.rounded
    assert compiling._wanted


def test_other_precisions_are_refused():
    with pytest.raises(ConfigurationError, match="another precision"):
        round_products(small().double())


def test_loops_that_nobody_compiles_are_named(monkeypatch):
    monkeypatch.setenv(loops.OFF, "1")
    with pytest.raises(ConfigurationError, match="NUMBA_DISABLE_JIT"):
        round_products(small())


def test_hooks_and_unknown_layers_are_refused():
    hooked, model = small(), small(positions="rotary")
    hooked.output.register_forward_hook(lambda *_: None)
    for each in (hooked, model):
        with pytest.raises(ConfigurationError, match="int8 knows no hooks"):
            round_products(each)
        assert not each.rounded


def test_where_nothing_can_be_kept_it_says_so(monkeypatch):
    monkeypatch.setattr(compiling, "_kept", lambda: False)
    with pytest.raises(ConfigurationError, match="XDG_CACHE_HOME"):
        round_products(small())
