"""What only a process of its own can show: kills, signals, pipes, closed streams, bare locales."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.journeys.commands import PATIENCE, Fork, finish, fork, leftovers, process, run


def wait_for(condition: Callable[[], object], started: Fork) -> None:
    limit = time.monotonic() + PATIENCE
    while not condition():
        assert started.alive(), started.finish()
        assert time.monotonic() < limit, "nothing happened"
        time.sleep(0.01)


def endless(corpus: Path, folder: Path) -> Fork:
    """A training that saves at every step and would go on for hours, resumed where there is one."""
    sets = ["training.max_steps=1000000", "training.save_every=1", "training.validate_every=999999"]
    more = [part for each in sets for part in ("--set", each)]
    more += ["--resume"] if folder.exists() else []
    return fork(folder.with_name("errors"), "train", corpus / "tiny.toml", "--run", folder, *more)


def newest(folder: Path) -> int:
    found = (folder / "checkpoints").glob("step-*")
    return max((int(path.name.removeprefix("step-")) for path in found), default=0)


@pytest.mark.slow
def test_a_kill_at_any_moment_leaves_a_checkpoint_that_works(corpus, tmp_path):
    folder, dice = tmp_path / "run", random.Random(4)
    for _ in range(8):
        before = newest(folder)
        started = endless(corpus, folder)
        wait_for(lambda before=before: newest(folder) > before, started)
        time.sleep(dice.random() / 20)
        started.send(signal.SIGKILL)
        assert started.finish()[0] == -signal.SIGKILL
        assert newest(folder) > before
        assert run("translate", "--model", folder, "--beam", "1", "El gato").code == 0
    before = newest(folder)
    started = endless(corpus, folder)
    wait_for(lambda: newest(folder) > before, started)
    started.send(signal.SIGTERM)
    assert started.finish() == (143, "")
    assert leftovers(folder) == []


def test_two_signals_end_a_training_at_once(corpus, tmp_path):
    folder = tmp_path / "run"
    started = endless(corpus, folder)
    wait_for(lambda: newest(folder), started)
    started.send(signal.SIGINT)
    started.send(signal.SIGINT)
    code, err = started.finish()
    assert code == 130
    assert "Traceback" not in err
    assert run("translate", "--model", folder, "--beam", "1", "El gato").code == 0


def test_the_order_of_hashes_changes_no_bit(trained, corpus, tmp_path):
    folder = tmp_path / "run"
    started = process(
        "train", corpus / "tiny.toml", "--run", folder, env={"PYTHONHASHSEED": "12345"}
    )
    assert finish(started).code == 0
    for name in ("model.safetensors", "tokenizer.model", "checksums.json"):
        assert (folder / name).read_bytes() == (trained / name).read_bytes()


def test_a_bare_locale_reads_and_writes_utf8(trained):
    bare = {
        "PYTHONIOENCODING": "ascii",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "LC_ALL": "C",
    }
    arguments = ["translate", "--model", str(trained), "--look"]
    started = process(*arguments, "El niño".encode(), b"\xed\xa0\x80 gato", env=bare)
    result = finish(started)
    assert result.code == 0, result
    assert "niño" in result.out
    assert result.out.startswith(run(*arguments, "El niño").out)


def test_a_closed_pipe_ends_silently(trained, tmp_path):
    started = process("translate", "--model", trained, "--beam", "1", stdin=subprocess.PIPE)
    assert started.stdout is not None
    started.stdout.close()
    result = finish(started, b"El gato\n" * 100)
    assert result.code == 141
    assert result.err == ""


def closed(redirection: str, *arguments: str | Path) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "regard", *map(str, arguments)]
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {redirection}', "sh", *command],
        capture_output=True,
        timeout=PATIENCE,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def test_closed_streams_are_told_apart_from_empty_ones(trained):
    result = closed("<&-", "translate", "--model", trained)
    assert result.returncode == 1
    assert b"error: standard input is closed" in result.stderr
    result = closed(">&-", "translate", "--model", trained, "El gato")
    assert result.returncode == 1
    assert b"error: standard output is closed" in result.stderr
    assert closed("2>&-", "no-such-command").returncode == 2
