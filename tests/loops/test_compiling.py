"""The instructions that loops are compiled to."""

from __future__ import annotations

import pytest

from regard.loops import compiling as machine


@pytest.mark.parametrize(
    ("message", "wide"), [("", False), ("+avx2,+fma", False), ("+avx512f", True)]
)
def test_instructions_are_those_numba_may_use(monkeypatch, message, wide):
    monkeypatch.setattr(machine.config, "CPU_FEATURES", message)
    machine.has.cache_clear()
    try:
        assert machine.has("avx512f") == wide
    finally:
        machine.has.cache_clear()
