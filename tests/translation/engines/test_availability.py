"""Compiled loops are used where their machine code can be kept."""

from __future__ import annotations

from pathlib import Path

import torch

from regard.translation.engines import engine


def test_nobody_without_a_home_is_stopped(monkeypatch):
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr(Path, "home", nowhere)
    engine._can_be_kept.cache_clear()
    try:
        assert "cannot be written" in str(engine.why_not(torch.device("cpu")))
    finally:
        engine._can_be_kept.cache_clear()
