"""A kill at any moment: what is trained from what it left is what would have been."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from tests.translation.tiny import resumed, trainer
from tests.translation.training.ranks import PATIENCE, forked

from regard.translation import checksums
from regard.translation.runs import Run
from regard.translation.runs.layout import MODEL

# Two batches a step, a pass that ends between two of them, reports, saves and validations at odds.
SETTINGS = (
    "training.max_steps=12",
    "training.accumulate=2",
    "training.batch_tokens=100",
    "training.schedule=plateau",
    "training.save_every=2",
    "training.validate_every=3",
    "training.keep_best=2",
    "training.patience=3",
    "training.log_every=5",
)
CALLS = ("fsync", "replace", "rename", "mkdir", "unlink", "rmdir", "open")


@contextmanager
def killed_at(number: int) -> Iterator[list[str]]:
    """SIGKILL just before the given change to the disk. Counts them, too."""
    calls: list[str] = []
    originals = {name: getattr(os, name) for name in CALLS}

    def counted(name: str):
        def call(*given: object, **named: object):
            calls.append(name)
            if len(calls) == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return originals[name](*given, **named)

        return call

    for name in CALLS:
        setattr(os, name, counted(name))
    try:
        yield calls
    finally:
        for name, call in originals.items():
            setattr(os, name, call)


def metrics_of(folder: Path) -> list[dict[str, object]]:
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [{k: v for k, v in line.items() if k != "tokens_per_second"} for line in lines]


def result(folder: Path) -> tuple[object, ...]:
    """What a finished training leaves: every checkpoint's weights and moments, its progress, its reports."""
    paths = sorted((folder / "checkpoints").iterdir())
    sums = [
        checksums.of(path / name) for path in paths for name in (MODEL, "optimiser.safetensors")
    ]
    newest = Run.open(folder).newest_checkpoint()
    assert newest is not None
    progress = json.loads((newest / "progress.json").read_text())
    del progress["seconds"], progress["validation_seconds"]
    if progress["since"]:
        progress["since"][2] = 0
    return (
        [path.name for path in paths],
        sums,
        progress,
        metrics_of(folder),
        (folder / "samples.txt").read_text(),
    )


@pytest.fixture(scope="module")
def straight(tmp_path_factory) -> tuple[tuple[object, ...], int]:
    """What an uninterrupted training leaves, and how many changes to the disk it makes."""
    folder = tmp_path_factory.mktemp("straight")
    new_trainer = trainer(folder, *SETTINGS)
    with killed_at(-1) as changes:
        new_trainer.train()
    return result(folder / "run"), len(changes)


def child(folder: Path, number: int) -> None:
    torch.set_num_threads(1)
    with killed_at(number):
        resumed(folder, *SETTINGS).train()
    os._exit(0)


def kill(folder: Path, number: int) -> None:
    context = multiprocessing.get_context("fork")
    started = context.Process(target=child, args=(folder, number), daemon=True)
    started.start()
    started.join(PATIENCE)
    assert started.exitcode == -signal.SIGKILL


@forked
def test_kills_at_any_change_to_the_disk_leave_the_run_that_was_not_killed(straight, tmp_path):
    expected, changes = straight
    trainer(tmp_path, *SETTINGS)
    for number in (7, 20, 33, 14, 50):  # each time in what goes on from the kill before
        kill(tmp_path, number)
    assert resumed(tmp_path, *SETTINGS).train() == "finished"
    assert result(tmp_path / "run") == expected
    assert changes > 100


@forked
@pytest.mark.parametrize("share", range(10))
def test_a_kill_anywhere_leaves_the_run_that_was_not_killed(straight, tmp_path, share):
    expected, changes = straight
    trainer(tmp_path, *SETTINGS)
    kill(tmp_path, 1 + changes * (2 * share + 1) // 20)
    assert resumed(tmp_path, *SETTINGS).train() == "finished"
    assert result(tmp_path / "run") == expected
