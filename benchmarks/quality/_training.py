"""Trainings through the command, as a user runs them: begun, gone on with, or found finished."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

TRIAL_STEPS = 60


def settings(**changed: object) -> list[str]:
    """Options for `regard train`: model__score="dot" becomes --set model.score=dot."""
    return [
        part
        for key, value in changed.items()
        for part in ("--set", f"{key.replace('__', '.')}={value}")
    ]


def train(configuration: str, run: Path, *options: str) -> Path:
    """The run in a folder, trained to its end; what was interrupted goes on."""
    arguments = [configuration, "--run", str(run), *options]
    if (run / "config.toml").exists():
        where = options.index("--data") if "--data" in options else len(options)
        arguments = [str(run), "--resume", *options[where : where + 2]]
    subprocess.run([sys.executable, "-m", "regard", "train", *arguments], check=True)
    return run


def train_for(minutes: float, configuration: str, run: Path, *options: str) -> Path:
    """The same, with as many steps as these minutes hold.

    The number of steps is measured first, on a short trial that is thrown away: the learning rate's
    schedule has to know its end.
    """
    if not (run / "config.toml").exists():
        trial = run.with_name(run.name + "-trial")
        shutil.rmtree(trial, ignore_errors=True)
        short = settings(
            training__max_steps=TRIAL_STEPS,
            training__log_every=TRIAL_STEPS // 2,
            training__validate_sentences=1,
        )
        train(configuration, trial, *options, *short)
        seconds = pace(trial)
        shutil.rmtree(trial)
        steps = int(minutes * 60 / seconds)
        return train_to(steps, configuration, run, *options)
    return train(configuration, run, *options)


def train_to(steps: int, configuration: str, run: Path, *options: str) -> Path:
    """The same, with so many steps, validated four times."""
    limits = settings(training__max_steps=steps, training__validate_every=max(1, steps // 4))
    return train(configuration, run, *options, *limits)


def pace(run: Path) -> float:
    """Seconds a step, by the end of a run: its beginning may have compiled loops."""
    lines = (json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines())
    report = [line for line in lines if line["kind"] == "step"][-1]
    state = progress(run)
    return float(state["target_tokens"] / state["step"] / report["tokens_per_second"])


def progress(run: Path) -> dict[str, Any]:
    """Steps, seconds and target tokens a finished run took, by its newest checkpoint."""
    records = [
        json.loads(path.read_text()) for path in (run / "checkpoints").glob("*/progress.json")
    ]
    return max(records, key=lambda record: record["step"])
