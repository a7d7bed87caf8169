"""The first translations of a new installation: `regard translate` with an empty cache of machine code.

REGARD_DATA=data python benchmarks/first_minute.py [--rounds 3] [--out benchmarks/results/first_minute.json]

Each run is a process of its own, on one thread; `processor` are its user and system seconds, `wall` those of the clock,
both medians. `empty`: nothing is compiled; a longer text makes a process in the background compile, the layers
translate, and that process is ended after the run. `compiling` is its work, measured apart. `full`: everything is in
the cache. `same` are the lines of 500 whose translations from an empty and a full cache are equal.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from _measure import write

from regard.translation.text.corpora import Tsv, read_aligned

TRANSLATE = "from regard.cli.main import main; raise SystemExit(main())"
LONG = 500  # lines, for which loops are loaded
LOOPS = "regard.translation.decoding.preparation"


def timed(command: list[str], cache: Path, text: str = "") -> tuple[dict[str, float], str]:
    """Processor and wall seconds of a process, and what it printed."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache), "OMP_NUM_THREADS": "1"}
    with TemporaryDirectory() as folder:
        source, result = Path(folder) / "source", Path(folder) / "result"
        source.write_text(text, encoding="utf-8")
        start = time.perf_counter()
        with source.open() as lines, result.open("w") as out:
            process = subprocess.Popen(
                command, stdin=lines, stdout=out, stderr=subprocess.DEVNULL, env=environment
            )
            _, _, usage = os.wait4(process.pid, 0)
            process.returncode = 0
        wall = time.perf_counter() - start
        printed = result.read_text(encoding="utf-8")
    return {"processor": usage.ru_utime + usage.ru_stime, "wall": wall}, printed


def end_compiling(cache: Path) -> None:
    """End the process that compiles in the background; its lock file names it."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for lock in cache.rglob("ready-*.lock"):
            with suppress(ProcessLookupError, ValueError, OSError):
                os.kill(int(lock.read_text()), signal.SIGKILL)
                return
        time.sleep(0.1)


def median(rows: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(row[name] for row in rows) for name in rows[0]}


def sentences(count: int) -> list[str]:
    table = Tsv(Path(os.environ["REGARD_DATA"]) / "tatoeba-spa-eng" / "valid.tsv", 1, 0)
    return random.Random(1).sample([pair.source for pair in read_aligned(table)], count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/first_minute.json"))
    options = parser.parse_args()
    translate = [sys.executable, "-c", TRANSLATE, "translate"]
    compiling = [sys.executable, "-P", "-m", "regard.loops.preparing", LOOPS]
    texts = {"1 line": "Hola.\n"}
    for count in (64, LONG):
        texts[f"{count} lines"] = "".join(f"{line}\n" for line in sentences(count))
    rows: dict[str, list[dict[str, float]]] = {}
    printed: dict[str, str] = {}
    for _ in range(options.rounds):
        for name, text in texts.items():
            with TemporaryDirectory() as folder:
                figures, printed[f"{name}, empty"] = timed(translate, Path(folder), text)
                rows.setdefault(f"{name}, empty", []).append(figures)
                if name == f"{LONG} lines":
                    end_compiling(Path(folder))
        with TemporaryDirectory() as folder:
            rows.setdefault("compiling", []).append(timed(compiling, Path(folder))[0])
            for name, text in texts.items():
                figures, printed[f"{name}, full"] = timed(translate, Path(folder), text)
                rows.setdefault(f"{name}, full", []).append(figures)
    results: dict[str, Any] = {name: median(several) for name, several in rows.items()}
    pairs = zip(
        *(printed[f"{LONG} lines, {c}"].splitlines() for c in ("empty", "full")), strict=True
    )
    results["same"] = sum(layers == loops for layers, loops in pairs)
    for name, figures in results.items():
        print(name, figures)
    write(options.out, results)


if __name__ == "__main__":
    main()
