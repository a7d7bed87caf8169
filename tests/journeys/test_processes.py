"""What only a process of its own can show: kills, signals, pipes, closed streams, bare locales."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from tests.journeys.commands import (
    PATIENCE,
    finish,
    leftovers,
    preload,
    process,
    start,
)
from tests.journeys.commands import run_apart as run

from regard.translation.settings import toml
from regard.translation.training import checkpoints
from regard.translation.training.loop import Trainer
from regard.translation.training.preparation import prepare


def wait_for(condition: Callable[[], object], started: subprocess.Popen[bytes]) -> None:
    limit = time.monotonic() + PATIENCE
    while not condition():
        assert started.poll() is None, finish(started)
        assert time.monotonic() < limit, "nothing happened"
        time.sleep(0.01)


def endless(corpus: Path, folder: Path) -> subprocess.Popen[bytes]:
    """A training that saves at every step and would go on for hours, resumed where there is one."""
    sets = ["training.max_steps=1000000", "training.save_every=1", "training.validate_every=999999"]
    more = [part for each in sets for part in ("--set", each)]
    more += ["--resume"] if folder.exists() else []
    command = ("train", corpus / "tiny.toml", "--run", folder, *more)
    return start(*command, stdout=subprocess.DEVNULL)


def newest(folder: Path) -> int:
    paths = (folder / "checkpoints").glob("step-*")
    return max((int(path.name.removeprefix("step-")) for path in paths), default=0)


def kill(trainer: Trainer, moment: Callable[[], None]) -> None:
    """Train in a child that would go on for hours, and kill it at some moment."""
    preload()
    child = os.fork()
    if child == 0:
        try:
            trainer.resume()
            trainer.train()
        finally:
            os._exit(1)
    moment()
    os.kill(child, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


@pytest.mark.skipif(torch.cuda.is_available(), reason="a process with a GPU cannot be forked")
def test_fifty_kills_at_any_moment_leave_a_checkpoint_that_works(corpus, tmp_path):
    """Each step saves. The child has everything but the checkpoint from here, so that it is soon at work again.

    After each kill the newest checkpoint is read here, and after every tenth the command reads it. Kills come at
    random from the start on, at random from the next checkpoint on, and in the middle of a checkpoint.
    """
    folder, dice = tmp_path / "run", random.Random(4)
    changes = ("max_steps=1000000", "save_every=1", "validate_every=999999", "log_every=1")
    configuration = toml.read(corpus / "tiny.toml", tuple(f"training.{c}" for c in changes))
    trainer = prepare(configuration, folder, data=corpus)
    torn = 0

    def soon() -> None:
        time.sleep(dice.random() / 10)

    def after_the_next() -> None:
        step_before, limit = newest(folder), time.monotonic() + PATIENCE
        while newest(folder) == step_before:
            assert time.monotonic() < limit, "nothing happened"
            time.sleep(0.001)
        time.sleep(dice.random() / 50)

    def in_the_middle() -> None:
        limit = time.monotonic() + PATIENCE
        while not any(".tmp" in name for name in os.listdir(folder / "checkpoints")):
            assert time.monotonic() < limit, "no checkpoint is written"
            time.sleep(0.0005)

    for kills in range(1, 51):
        step_before = newest(folder)
        kill(trainer, (soon, after_the_next, in_the_middle)[kills % 3])
        torn += bool(leftovers(folder))
        assert newest(folder) >= step_before
        checkpoint = trainer.run.newest_checkpoint()
        assert checkpoint is not None
        assert checkpoints.load(checkpoint, trainer.model, trainer.optimiser).step == newest(folder)
        if kills % 10 == 0:
            assert run("translate", "--model", folder, "--beam", "1", "El gato").code == 0
    assert torn, "none came in the middle of a checkpoint"

    reached = newest(folder)
    straight = prepare(configuration, tmp_path / "straight", data=corpus)
    straight.train(lambda: straight.progress.step >= reached)
    for name in ("model.safetensors", "optimiser.safetensors"):
        killed, straight_path = (
            each / "checkpoints" / f"step-{reached}" / name
            for each in (folder, straight.run.folder)
        )
        assert killed.read_bytes() == straight_path.read_bytes()

    started = endless(corpus, folder)  # and the command goes on from there, and tidies up
    wait_for(lambda: newest(folder) > reached, started)
    started.send_signal(signal.SIGTERM)
    result = finish(started)
    assert (result.code, result.err) == (143, "")
    assert leftovers(folder) == []


def shared_memory() -> set[str]:
    return set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()


def children(started: subprocess.Popen[bytes]) -> list[str]:
    path = Path(f"/proc/{started.pid}/task/{started.pid}/children")
    return path.read_text(encoding="ascii").split() if path.exists() else []


def test_two_signals_end_a_training_at_once(corpus, tmp_path):
    folder, shared = tmp_path / "run", shared_memory()
    started = endless(corpus, folder)
    wait_for(lambda: newest(folder), started)
    assert (
        children(started) == []
    )  # data comes from no process of its own: there is none to be left behind
    started.send_signal(signal.SIGINT)
    started.send_signal(signal.SIGINT)
    result = finish(started)
    assert result.code == 130
    assert "Traceback" not in result.err
    assert shared_memory() <= shared
    assert run("translate", "--model", folder, "--beam", "1", "El gato").code == 0


def test_a_bare_locale_reads_and_writes_utf8(trained):
    bare = {
        "PYTHONIOENCODING": "ascii",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "LC_ALL": "C",
    }
    arguments = ["translate", "--model", str(trained), "--look", "--prefix"]
    texts = "Él".encode(), "El niño".encode(), b"\xed\xa0\x80 gato"
    result = finish(process(*arguments, *texts, env=bare))
    assert result.code == 0, result
    assert result.out.startswith("Él")
    assert "niño" in result.out
    assert result.out.startswith(run(*arguments, "Él", "El niño").out)


def test_a_closed_pipe_ends_silently(trained, tmp_path):
    started = start("translate", "--model", trained, "--beam", "1", stdin=subprocess.PIPE)
    assert started.stdout is not None
    started.stdout.close()
    result = finish(started, b"El gato\n" * 100)
    assert result.code == 141
    assert result.err == ""


def test_a_folder_in_the_place_of_standard_input_is_refused_by_the_interpreter(trained, tmp_path):
    """Before any code of ours runs: Python ends in a line of its own, with a code like ours."""
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        result = finish(process("translate", "--model", trained, stdin=descriptor))
    finally:
        os.close(descriptor)
    assert (result.code, result.out) == (1, "")
    assert "<stdin> is a directory" in result.err
    assert "Traceback" not in result.err


def test_closed_streams_are_told_apart_from_empty_ones(trained):
    result = finish(start("translate", "--model", trained, closed=[0]))
    assert result.code == 1
    assert "error: standard input is closed" in result.err
    result = finish(start("translate", "--model", trained, "El gato", closed=[1]))
    assert result.code == 1
    assert "error: standard output is closed" in result.err
    assert finish(start("no-such-command", closed=[2])).code == 2


@pytest.mark.parametrize("descriptor", [0, 1, 2])
def test_the_interpreter_has_no_stream_where_nothing_is_open(descriptor):
    """As a child of this process has none: see `start`."""
    program = f"import os, sys; os._exit(sys.{('stdin', 'stdout', 'stderr')[descriptor]} is None)"
    closing = partial(os.close, descriptor)
    ended = subprocess.run([sys.executable, "-c", program], preexec_fn=closing, check=False)
    assert ended.returncode == 1
