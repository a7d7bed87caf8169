"""What a look costs, beside one forward pass of torch's fused attention, in time and in memory.

    python benchmarks/looks.py [--length 8192] [--heads 8] [--threads 2] [--rounds 5] [--long]

Every answer is timed cold, from `look(...)` to the tensor, in turn with the fused forward pass of
the same round; medians. Memory is the peak of a fresh process over its peak after a small look, as a
share of the weights. `--long` adds 65,536 x 65,536, one head. Writes benchmarks/results/looks.json.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

import regard

ANSWERS: dict[str, Callable[[Any], Any]] = {
    "log_normaliser": lambda look: look.log_normaliser(),
    "top": lambda look: look.top(8),
    "argmax": lambda look: look.argmax(),
    "entropy": lambda look: look.entropy(),
    "perplexity": lambda look: look.perplexity(),
    "received": lambda look: look.received(),
    "map": lambda look: look.map(256, 256),
    "map_max": lambda look: look.map(256, 256, reduce="max"),
    "map_uneven": lambda look: look.map(300, 300),
    "distance": lambda look: look.distance(),
    "weights": lambda look: look.weights(rows=range(64)),
}
LONG = 65536


def draw(length: int, heads: int) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, heads, length, 64) for _ in range(3))
    return query, key, value


def ask(name: str, query: torch.Tensor, key: torch.Tensor, causal: bool) -> None:
    mask = regard.masks.causal(align="start") if causal else None
    ANSWERS[name](regard.look(query, key, mask=mask))


def seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def times(length: int, heads: int, rounds: int, causal: bool) -> dict[str, dict[str, float]]:
    """Medians of rounds in which each answer is followed by a fused forward pass."""
    query, key, value = draw(length, heads)
    found = {}
    for name in ANSWERS:
        ours, fused = [], []
        for _ in range(rounds + 1):
            ours.append(seconds(lambda name=name: ask(name, query, key, causal)))
            fused.append(
                seconds(lambda: F.scaled_dot_product_attention(query, key, value, is_causal=causal))
            )
        one, other = statistics.median(ours[1:]), statistics.median(fused[1:])
        found[name] = {"seconds": one, "fused_seconds": other, "ratio": one / other}
    return found


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(name: str, length: int, heads: int, causal: bool) -> dict[str, float]:
    """Seconds and bytes of one answer, in this process, which is a fresh one."""
    query, key, _ = draw(length, heads)
    ask(name, query[..., :300, :], key[..., :300, :], causal)
    before = peak()
    took = seconds(lambda: ask(name, query, key, causal))
    return {"seconds": took, "bytes": peak() - before, "matrix": heads * length**2 * 4}


def afresh(name: str, length: int, heads: int, causal: bool, threads: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--measure", name, "--length", str(length)]
    command += ["--heads", str(heads), "--threads", str(threads), *(["--causal"] * causal)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    got: dict[str, float] = json.loads(done.stdout)
    return got


def commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=Path(__file__).parent
    ).stdout.strip()


def machine() -> dict[str, str | int]:
    info = Path("/proc/cpuinfo")
    names = (
        [line for line in info.read_text().splitlines() if line.startswith("model name")]
        if info.exists()
        else []
    )
    return {
        "processor": names[0].split(":")[1].strip() if names else platform.processor(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "regard": regard.__version__ if hasattr(regard, "__version__") else "",
        "commit": commit(),
        "threads": torch.get_num_threads(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--length", type=int, default=8192)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--causal", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results/looks.json")
    told = parser.parse_args()
    torch.set_num_threads(told.threads)
    if told.measure:
        print(json.dumps(measure(told.measure, told.length, told.heads, told.causal)))
        return
    result: dict[str, Any] = {**machine(), "length": told.length, "heads": told.heads, "looks": []}
    print(f"{'answer':16} {'causal':7} {'seconds':>9} {'fused':>9} {'ratio':>7} {'memory':>9}")
    for causal in (False, True):
        for name, row in times(told.length, told.heads, told.rounds, causal).items():
            memory = afresh(name, told.length, told.heads, causal, told.threads)
            share = memory["bytes"] / memory["matrix"]
            result["looks"].append(
                {"answer": name, "causal": causal, **row, "bytes": memory["bytes"], "share": share}
            )
            print(
                f"{name:16} {causal!s:7} {row['seconds']:9.3f} {row['fused_seconds']:9.3f}"
                f" {row['ratio']:6.2f}x {share:9.2%}",
                flush=True,
            )
    if told.long:
        result["long"] = {}
        for name in ANSWERS:
            result["long"][name] = afresh(name, LONG, 1, False, told.threads)
            print(f"{name:16} {LONG} x {LONG}: {result['long'][name]}", flush=True)
    told.out.parent.mkdir(parents=True, exist_ok=True)
    told.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
