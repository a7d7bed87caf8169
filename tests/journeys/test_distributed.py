"""torchrun, as a person types it: one voice, one run folder, one save for a Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from tests.journeys.commands import PATIENCE, Result, check_refused, finish, leftovers, run, start

from regard.cli import card
from regard.cli.signals import Signals
from regard.translation.runs.layout import checkpoint_name

PLAIN = ("--set", "model.dropout=0.0", "--set", "training.log_every=1")


def torchrun(*arguments: str | Path) -> subprocess.Popen[bytes]:
    """Two processes of a command. They and torchrun are children, which have torch already."""
    # A busy machine takes longer to save than the 30 seconds that torchrun waits.
    launcher = "--standalone --shutdown-timeout 300 --nproc-per-node 2 -m -- regard".split()
    module = "torch.distributed.run"
    return start(*launcher, *arguments, module=module, program=launch, start_new_session=True)


def launch() -> int:
    """torchrun, whose processes are children of it."""
    from torch.distributed.run import main

    def child(args: tuple[str, ...], env: dict[str, str], **settings: Any) -> object:
        words = args[args.index("regard") + 1 :]
        return start(*words, env=env, **{**settings, "stdout": None, "stderr": None})

    place = "torch.distributed.elastic.multiprocessing.subprocess_handler.subprocess_handler"
    with patch(f"{place}.Popen", child):
        main(sys.argv[1:])
    return 0


def ended(started: subprocess.Popen[bytes]) -> Result:
    try:
        return finish(started)
    except subprocess.TimeoutExpired:
        os.killpg(started.pid, signal.SIGKILL)  # the processes that it started, too
        raise


def newest(folder: Path) -> int:
    """The step of the newest checkpoint. Older ones are removed, so that a step may be missed."""
    names = (each.name for each in (folder / "checkpoints").glob("step-*"))
    return max((int(name.split("-")[1]) for name in names), default=0)


def losses(folder: Path) -> list[float]:
    lines = map(json.loads, (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return [line["loss"] for line in lines]


def test_two_processes_train_as_one_and_go_on_as_one(corpus, tmp_path):
    alone, folder = tmp_path / "alone", tmp_path / "two"
    assert run("train", corpus / "tiny.toml", "--run", alone, *PLAIN).code == 0
    endless = ("--set", "training.max_steps=100000", "--set", "training.validate_every=6")
    first_run = torchrun("train", corpus / "tiny.toml", "--run", folder, *PLAIN, *endless)
    limit = time.monotonic() + PATIENCE
    while newest(folder) < 6:
        assert first_run.poll() is None, first_run.communicate()
        assert time.monotonic() < limit, "nothing happened"
        time.sleep(0.05)
    first_run.send_signal(signal.SIGINT)
    _, out, err, *_ = ended(first_run)
    (stopped,) = [line for line in out.split("\n") if line.startswith("stopped and saved at step")]
    step = int(stopped.split()[5].rstrip(";"))
    assert f"torchrun --nproc-per-node 2 -m -- regard train {folder} --resume" in stopped
    assert "error:" not in err
    assert out.count("200 training pairs") == 1
    # A checkpoint whose validation the signal has stopped has a name of its own.
    names = {checkpoint_name(step, unvalidated) for unvalidated in (False, True)}
    assert any((folder / "checkpoints" / name).exists() for name in names)
    assert leftovers(folder) == []
    # The schedule up to here does not depend on the budget: these are the steps of one process.
    assert losses(folder)[:6] == pytest.approx(losses(alone)[:6], rel=1e-5)
    more = ("--data", corpus, "--set", f"training.max_steps={step + 2}")
    finished = run("train", folder, "--resume", *more)
    assert finished.code == 0, finished
    assert f"resumed at step {step}" in finished.out
    assert run("translate", "--model", folder, "--beam", "1", "El gato").code == 0


def test_the_processes_end_when_torchrun_is_killed(corpus, tmp_path):
    """Each of them holds standard error open: it ends when the last of them has ended."""
    folder = tmp_path / "run"
    endless = ("--set", "training.max_steps=100000000", "--set", "training.save_every=1")
    started = torchrun("train", corpus / "tiny.toml", "--run", folder, *PLAIN, *endless)
    limit = time.monotonic() + PATIENCE
    while newest(folder) < 2:
        assert started.poll() is None, started.communicate()
        assert time.monotonic() < limit, "nothing happened"
        time.sleep(0.05)
    started.kill()
    # A process may lose a connection that torchrun held before it sees that torchrun has ended.
    message = "error: .* has ended: continue from the newest checkpoint"
    assert re.search(message, ended(started).err)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a process with a GPU cannot be forked")
def test_a_mistake_is_told_once(corpus, tmp_path):
    """With the store and the variables of torchrun, in children of this process, which have torch already."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    variables = {
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
    }
    folder = tmp_path / "run"
    command = ("train", corpus / "tiny.toml", "--run", folder, "--data", tmp_path)
    ranks = [start(*command, env={**variables, "RANK": r, "LOCAL_RANK": r}) for r in "01"]
    results = [finish(rank) for rank in ranks]
    assert [result.code for result in results] == [1, 1]
    assert sum(result.err.count("error: train.es: no such file") for result in results) == 1
    assert [result.out for result in results] == ["", ""]
    assert not folder.exists()


def test_a_command_is_told_as_it_was_started(monkeypatch):
    assert card.typed(["train", "a b"]) == "regard train 'a b'"
    monkeypatch.setenv("WORLD_SIZE", "6")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    expected = "torchrun --nnodes 3 --nproc-per-node 2 -m -- regard train x"
    assert card.typed(["train", "x"]) == expected


def test_a_device_for_one_is_refused_to_several(corpus, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    result = run("train", corpus / "tiny.toml", "--run", tmp_path / "run", "--device", "meta")
    check_refused(result, "--device meta", "several processes", code=2)


def test_the_command_that_is_printed_repeats_the_run(trained, tmp_path):
    text = (trained / "said").read_text(encoding="utf-8")
    _, _, command = text.partition("To repeat this run:\n  ")
    words = command.split()
    assert words[:3] == ["regard", "train", str(trained / "config.toml")]
    words[words.index("--run") + 1] = str(tmp_path / "again")
    assert run(*words[1:]).code == 0
    for name in ("model.safetensors", "tokenizer.model"):
        assert (tmp_path / "again" / name).read_bytes() == (trained / name).read_bytes()


def test_a_run_starts_from_another_or_goes_on_but_not_both(trained, corpus, tmp_path):
    tuned = tmp_path / "tuned"
    sets = ("--run", tuned, "--set", "training.max_steps=1", "--set", "seed=8")
    result = run("train", corpus / "tiny.toml", "--from", trained, *sets)
    assert result.code == 0, result
    assert f"--from {trained}" in (tuned / "card.md").read_text(encoding="utf-8")
    assert f"--from {trained}" in result.out  # the command that repeats it
    wider_model = ("--set", "model.width=32")
    refused = run(
        "train", corpus / "tiny.toml", "--from", trained, "--run", tmp_path / "no", *wider_model
    )
    check_refused(refused, "model.width = 32, there 16", trained, code=2)
    both_result = run("train", tuned, "--resume", "--from", trained)
    check_refused(both_result, "--from starts a new run", code=2)
    nothing = run("train", corpus / "tiny.toml", "--from", tmp_path / "none")
    check_refused(nothing, tmp_path / "none")


def test_a_signal_that_torchrun_passes_on_twice_is_one():
    with Signals() as signals:
        signals.patient = True
        with signals.saving():
            for _ in range(3):
                os.kill(os.getpid(), signal.SIGTERM)
        assert signals.received == signal.SIGTERM
