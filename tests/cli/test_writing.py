"""Commands that write into a run folder say where no lock keeps others away."""

from __future__ import annotations

import errno
from pathlib import Path

import filelock

from regard.cli import shipped
from regard.cli.writing import writing
from regard.translation.runs import Run
from regard.translation.settings import toml


def test_a_file_system_without_locks_is_noted(tmp_path, monkeypatch, capsys):
    def without_locks(handle: int, *, blocking: bool) -> bool:
        raise OSError(errno.ENOLCK, "No locks available")

    configuration = toml.read(Path(shipped.configuration("reverse")))
    run = Run(tmp_path / "run", configuration)
    with writing(run):
        pass
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(filelock, "lock_descriptor", without_locks)
    with writing(run):
        pass
    assert f"note: {run.folder}: its file system has no locks" in capsys.readouterr().err
