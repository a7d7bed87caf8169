"""Compiled loops are used where they can be kept, and compiled anew when what they are made of changes."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch

import regard
from regard.attention.kernels.cpu import cache, machine
from regard.translation.models import compiling

SOURCES = Path(regard.__file__).parent
KERNELS = "regard.attention.kernels.cpu"
# Ids and rules that are the same in every file we ever wrote.
CONSTANTS = {"regard.translation.text.tokenizer"}


def loops() -> list[Path]:
    return [p for p in sorted(SOURCES.rglob("*.py")) if "import compiled" in p.read_text("utf-8")]


def test_there_are_loops():
    assert len(loops()) > 3


@pytest.mark.parametrize("path", loops(), ids=lambda path: path.stem)
def test_loops_are_made_of_what_their_cache_knows(path):
    """`cache.stamp` reads the kernels and the file's own folder: a change elsewhere would go unseen."""
    own = ".".join(["regard", *path.relative_to(SOURCES).parent.parts])
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("regard"):
            assert node.module in CONSTANTS or node.module.startswith((KERNELS, own)), node.module


def test_nobody_without_a_home_is_stopped(monkeypatch):
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(cache.config, "CACHE_DIR", "")
    monkeypatch.setattr(Path, "home", nowhere)
    compiling._kept.cache_clear()
    try:
        assert not compiling.serves(torch.device("cpu"))
    finally:
        compiling._kept.cache_clear()


@pytest.mark.parametrize(("told", "wide"), [("", False), ("+avx2,+fma", False), ("+avx512f", True)])
def test_instructions_are_those_numba_may_use(monkeypatch, told, wide):
    monkeypatch.setattr(machine.config, "CPU_FEATURES", told)
    machine.has.cache_clear()
    try:
        assert machine.has("avx512f") == wide
    finally:
        machine.has.cache_clear()
