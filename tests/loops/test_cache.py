"""The cache of machine code sees every file that it is made from."""

from __future__ import annotations

import ast
import os
import time
from pathlib import Path

import pytest

import regard
from regard.loops import cache, places

SOURCES = Path(regard.__file__).resolve().parent
LOOPS = [p for p in sorted(SOURCES.rglob("*.py")) if "@compiled" in p.read_text("utf-8")]


def test_there_are_loops():
    assert len(LOOPS) > 3


@pytest.mark.parametrize("path", LOOPS, ids=lambda path: path.stem)
def test_every_module_that_a_source_imports_is_a_source(path):
    """Read here from the syntax tree, there from the text."""
    sources = places.sources(path)
    assert SOURCES / "loops" / "compiling.py" in sources
    for source in sources:
        for node in ast.walk(ast.parse(source.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("regard"):
                module = SOURCES.parent.joinpath(*node.module.split("."))
                named = [module, *(module / each.name for each in node.names)]
                files = [each.with_suffix(".py") for each in named]
                assert {file for file in files if file.is_file()} <= set(sources), source


def test_a_change_in_any_source_changes_the_stamp(tmp_path, monkeypatch):
    package = tmp_path / "regard"
    (package / "inner").mkdir(parents=True)
    files = {
        "a.py": "from regard.inner import b\nfrom regard.inner.c import (\n    one,  # a comment, with\n    two,\n)",
        "inner/b.py": "",
        "inner/c.py": "def f():\n    from regard import d\n",
        "d.py": "from regard.a import f  # a circle",
        "apart.py": "",
    }
    for name, text in files.items():
        (package / name).write_text(text)
    monkeypatch.setattr(places, "PACKAGE", tmp_path)
    assert {file.name for file in places.sources(package / "a.py")} == {
        "a.py",
        "b.py",
        "c.py",
        "d.py",
    }
    stamps = {places.stamp.__wrapped__(package / "a.py")}
    for name in files:
        (package / name).write_text(files[name] + "\n# changed")
        stamps.add(places.stamp.__wrapped__(package / "a.py"))
    assert len(stamps) == len(files)  # apart.py is none of its sources


def test_what_nobody_uses_is_removed_and_nothing_else(tmp_path):
    old = time.time() - 31 * 24 * 3600

    def make_folder(name: str, *, used: float = old) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "code").write_bytes(b"code")
        os.utime(folder, (used, used))
        return folder

    removed_folders = [make_folder("0a" * 8), make_folder(".0123456789ab.0123456789ab.tmp")]
    stays = [
        make_folder("2c" * 8, used=time.time()),
        make_folder("somebody's"),
        make_folder("0" * 15),
    ]
    elsewhere = make_folder("elsewhere")
    (tmp_path / ("3d" * 8)).symlink_to(elsewhere)
    cache.remove_unused(tmp_path)
    assert not any(folder.exists() for folder in removed_folders)
    assert all((folder / "code").exists() for folder in [*stays, elsewhere])
    assert not list(tmp_path.glob("*.tmp"))
