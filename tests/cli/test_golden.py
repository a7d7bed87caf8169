"""The help of every command and the exit codes of many uses are those stored in `golden/`.

After a change that is meant, store them anew and read the difference:

    REGARD_WRITE_GOLDEN=1 pytest tests/cli/test_golden.py
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest
from tests.journeys.commands import run_here

import regard
from regard.cli.main import command_line

GOLDEN = Path(__file__).parent / "golden"
EXITS = GOLDEN / "exits.txt"
PACKAGE = Path(regard.__file__).parent


def paths(group=None, *path: str) -> list[tuple[str, ...]]:
    """The words that name each command and each group of commands."""
    group = group or command_line()
    below = getattr(group, "commands", {})
    return [path, *(found for name in below for found in paths(below[name], *path, name))]


def help_file(path: tuple[str, ...]) -> Path:
    return GOLDEN / "help" / f"{'-'.join(('regard', *path))}.txt"


def check(path: Path, text: str) -> None:
    """Compare a text with a stored one, or store it where the environment asks for that."""
    if os.environ.get("REGARD_WRITE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), f"{path.name} differs: see {__file__}"


@pytest.fixture(autouse=True)
def an_empty_folder(tmp_path, monkeypatch):
    """Commands run here, without a folder of corpora."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REGARD_DATA", raising=False)
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.parametrize("path", paths(), ids=" ".join)
def test_help_is_as_stored(path):
    result = run_here(*path, "--help")
    assert (result.code, result.err) == (0, "")
    check(help_file(path), result.out)


def test_no_help_is_stored_of_a_command_that_does_not_exist():
    assert set((GOLDEN / "help").iterdir()) == {help_file(path) for path in paths()}


def test_exit_codes_and_errors_are_as_stored(tmp_path):
    """Each use in the file is run again: a line with the command, then its exit code and last error."""
    (tmp_path / "one.tsv").write_text("un gato\ta cat\n", encoding="utf-8")
    (tmp_path / "two.txt").write_text("un gato\nun perro\n", encoding="utf-8")
    (tmp_path / "three.txt").write_text("a cat\na dog\na mouse\n", encoding="utf-8")
    uses = [line for line in EXITS.read_text(encoding="utf-8").splitlines() if line[:1] == "$"]
    messages = []
    for use in uses:
        result = run_here(*shlex.split(use)[2:])
        last_text = result.last_line.replace(str(PACKAGE), "PACKAGE").replace(str(tmp_path), "HERE")
        messages.append(f"{use}\n{result.code} {last_text}".rstrip() + "\n")
    check(EXITS, "\n".join(messages))


def test_another_text_is_refused(tmp_path, monkeypatch):
    monkeypatch.delenv("REGARD_WRITE_GOLDEN", raising=False)
    (tmp_path / "stored.txt").write_text("a", encoding="utf-8")
    with pytest.raises(AssertionError, match=r"stored\.txt differs"):
        check(tmp_path / "stored.txt", "b")
