"""Medians of runs taken in turn, so that a slow minute of the machine is everybody's."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def interleaved(
    runs: dict[str, Callable[[], Any]],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Median seconds of each, after one run each that is not counted.

    A run much shorter than the longest is repeated within its turn. With `time.process_time` the
    seconds are those of the processor, which other programs on the machine change less.
    """
    once = {name: _time(run, clock) for name, run in runs.items()}
    once = {name: _time(run, clock) for name, run in runs.items()}
    longest = max(once.values())
    repeats = {name: max(1, min(8, int(longest / seconds / 4))) for name, seconds in once.items()}
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            times[name] += [_time(run, clock) for _ in range(repeats[name])]
    return {name: statistics.median(taken) for name, taken in times.items()}


def _time(run: Callable[[], Any], clock: Callable[[], float]) -> float:
    start = clock()
    run()
    return clock() - start


def machine() -> dict[str, Any]:
    """The machine, the versions and the commit of a figure."""
    import numba
    import torch

    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numba": numba.__version__,
        "commit": commit,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if "model name" in line), "")


def write(path: Path, results: dict[str, Any], *, keeps: Path | None = None) -> None:
    """Results with the machine they were taken on, as JSON.

    With those of `keeps` among them, the machines and commits of these are listed as `earlier`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    origin: dict[str, Any] = {"machine": machine()}
    if keeps and keeps.exists():
        stored = json.loads(keeps.read_text())
        earlier = [*stored.get("earlier", ()), stored["machine"]]
        origin["earlier"] = [
            each for each in earlier if each["commit"] != origin["machine"]["commit"]
        ]
    path.write_text(json.dumps({**origin, **results}, indent=2) + "\n")
