"""Compiled loops are used where their machine code can be kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from regard.loops.preparing import Preparation
from regard.translation.engines import engine


@pytest.fixture(autouse=True)
def ask_anew() -> Iterator[None]:
    engine._can_be_kept.cache_clear()
    yield
    engine._can_be_kept.cache_clear()


def test_nobody_without_a_home_is_stopped(monkeypatch):
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr(Path, "home", nowhere)
    assert "cannot be written" in str(engine.loops_objection(torch.device("cpu")))


def test_loops_whose_sources_cannot_be_read_are_not_loaded(monkeypatch):
    monkeypatch.setattr(engine, "LOOPS", Preparation("regard.in_an_archive"))
    assert engine.loops_objection(torch.device("cpu")) is not None


def test_a_folder_that_another_user_made_is_not_used(monkeypatch):
    def may(path: Path, mode: int) -> bool:
        return Path(path) != engine.LOOPS.folder

    monkeypatch.setattr(engine.os, "access", may)
    assert "cannot be written" in str(engine.loops_objection(torch.device("cpu")))
