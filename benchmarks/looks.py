"""What a look costs, beside one forward pass of torch's fused attention, in time and in memory.

    python benchmarks/looks.py                          all of it, some minutes
    python benchmarks/looks.py --parts time --masks causal --answers top,argmax
    python benchmarks/looks.py --parts memory,long,plot
    python benchmarks/looks.py --parts additive --threads 1 --rounds 7

Scaled dot, 8,192 x 8,192, 8 heads, width 64, float32. `time`: every answer cold, from `look(...)` to
the tensor, in turn with the fused forward pass; medians. `memory`: the peak of a fresh process over
what it held before, the answer included, as a share of the weights. `long`: 65,536 x 65,536, one
head, with a progress callback, in a fresh process. `additive`: looks at additive scores over
`regard.attend` with the same arguments, values as wide as the keys, in seconds of the processor.
`plot`: a picture of what was measured. Each part adds to benchmarks/results/looks.json what it measured,
and leaves the rest as it was.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from _measure import interleaved, machine
from torch.nn import functional as F

import regard

ANSWERS: dict[str, Callable[..., Any]] = {
    "log_normaliser": lambda look, **told: look.log_normaliser(**told),
    "entropy": lambda look, **told: look.entropy(**told),
    "perplexity": lambda look, **told: look.perplexity(**told),
    "received": lambda look, **told: look.received(**told),
    "distance": lambda look, **told: look.distance(**told),
    "argmax": lambda look, **told: look.argmax(**told),
    "top": lambda look, **told: look.top(8, **told),
    "map": lambda look, **told: look.map(256, 256, **told),
    "map_uneven": lambda look, **told: look.map(300, 300, **told),
    "map_max": lambda look, **told: look.map(256, 256, reduce="max", **told),
    "weights": lambda look, **told: look.weights(rows=range(64), **told),
}
MASKS = {"full": None, "causal": regard.masks.causal(align="start")}
ADDITIVE = [(length, width) for length in (512, 1024, 2048) for width in (64, 256)]
ADDITIVE_MASKS = {
    "full": lambda length: None,
    "causal": lambda length: regard.masks.causal(align="start"),
    "padding": lambda length: regard.masks.padding(length * 3 // 4),
    "causal & padding": lambda length: (
        regard.masks.causal(align="start") & regard.masks.padding(length * 3 // 4)
    ),
}
LONG, FUSED, BOUND = 65536, "fused attention", 2.5
FOLDER = Path(__file__).parent / "results"


def draw(length: int, heads: int) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, heads, length, 64) for _ in range(3))
    return query, key, value


def times(options: argparse.Namespace, mask: str) -> dict[str, Any]:
    """Median seconds of the fused pass and of every answer, taken in turn."""
    query, key, value = draw(options.length, options.heads)

    def fused() -> None:
        F.scaled_dot_product_attention(query, key, value, is_causal=mask == "causal")

    def ask(name: str) -> Callable[[], None]:
        return lambda: ANSWERS[name](regard.look(query, key, mask=MASKS[mask]))

    runs: dict[str, Callable[[], Any]] = {FUSED: fused}
    seconds_by_name = interleaved(
        runs | {name: ask(name) for name in options.answers}, options.rounds
    )
    base = seconds_by_name.pop(FUSED)
    return {
        name: {"seconds": seconds, "fused_seconds": base, "ratio": seconds / base}
        for name, seconds in seconds_by_name.items()
    }


def additive_times(length: int, width: int, mask: Any, rounds: int) -> dict[str, float]:
    """Median processor seconds of every answer at additive scores, over those of attend."""
    torch.manual_seed(0)
    query, key, value = (torch.randn(length, width) for _ in range(3))
    score = regard.scores.Additive(width, width, width).requires_grad_(False)
    arguments = {"score": score, "mask": mask}
    runs: dict[str, Callable[[], Any]] = {
        name: lambda answer=answer: answer(regard.look(query, key, **arguments))
        for name, answer in ANSWERS.items()
    }
    attend = {"attend": lambda: regard.attend(query, key, value, **arguments)}
    seconds = interleaved(attend | runs, rounds, time.process_time)
    base = seconds.pop("attend")
    return {"attend_seconds": base, **{name: each / base for name, each in seconds.items()}}


def resident(kind: str) -> int:
    """Bytes that this process holds (VmRSS), or at most held since the peak was forgotten (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(kind))


def measure(name: str, length: int, heads: int, mask: str) -> dict[str, float]:
    """Seconds and bytes of one answer, in this process, which is a fresh one."""
    calls: list[tuple[int, int]] = []

    def progress(*rows: int) -> None:
        calls.append(rows)  # type: ignore[arg-type]

    query, key, _ = draw(length, heads)
    ANSWERS[name](regard.look(query[..., :1024, :], key[..., :1024, :], mask=MASKS[mask]))
    Path("/proc/self/clear_refs").write_text("5")
    base, start = resident("VmRSS"), time.perf_counter()
    ANSWERS[name](regard.look(query, key, mask=MASKS[mask]), progress=progress)
    seconds = time.perf_counter() - start
    peak = resident("VmHWM") - base
    matrix = heads * length**2 * 4
    counted = {"bytes": peak, "share": peak / matrix, "progress_calls": len(calls)}
    return {"seconds": seconds, **counted}


def afresh(options: argparse.Namespace, name: str, length: int, heads: int, mask: str) -> Any:
    command = [sys.executable, __file__, "--measure", name, "--length", str(length)]
    command += ["--heads", str(heads), "--threads", str(options.threads), "--masks", mask]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def plot(results: dict[str, Any], path: Path) -> None:
    """Bars: each answer's time over the fused pass's, and the bound."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    for i, (mask, colour) in enumerate(zip(MASKS, ("#6ba6cf", "#174680"), strict=True)):
        rows = [(n, results["time"][mask][n]) for n in ANSWERS if n in results["time"][mask]]
        places = [k + (i - 0.5) * 0.4 for k in range(len(rows))]
        bars = axes.bar(places, [row["ratio"] for _, row in rows], 0.38, label=mask, color=colour)
        axes.bar_label(bars, fmt="%.2f", fontsize=6)
        axes.set_xticks(range(len(rows)), [n for n, _ in rows], rotation=30, ha="right")
    axes.axhline(BOUND, color="#c2410c", linewidth=1, label=f"{BOUND} x")
    axes.axhline(1, color="#68717d", linewidth=0.8, linestyle=":")
    axes.set_ylabel("times one fused forward pass")
    size = results["size"]
    axes.set_title(
        f"Looks at {size['length']:,} x {size['length']:,}, {size['heads']} heads, width 64,"
        f" {results['machine']['threads']} threads",
        fontsize=10,
    )
    axes.legend(frameon=False)
    figure.savefig(path, dpi=160, metadata={"Software": None})


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--parts", type=_list, default=["time", "memory", "long", "additive", "plot"]
    )
    parser.add_argument("--masks", type=_list, default=list(MASKS))
    parser.add_argument("--answers", type=_list, default=list(ANSWERS))
    parser.add_argument("--length", type=int, default=8192)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=FOLDER / "looks.json")
    return parser.parse_args()


def _list(text: str) -> list[str]:
    return text.split(",")


def main() -> None:
    options = parse()
    torch.set_num_threads(options.threads)
    if options.measure:
        print(json.dumps(measure(options.measure, options.length, options.heads, options.masks[0])))
        return
    results: dict[str, Any] = json.loads(options.out.read_text()) if options.out.exists() else {}
    if set(options.parts) - {"additive", "plot"}:
        results["machine"] = machine()
        results["size"] = {"length": options.length, "heads": options.heads, "width": 64}

    def keep(section: str, mask: str, rows: dict[str, Any]) -> None:
        results.setdefault(section, {}).setdefault(mask, {}).update(rows)
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(results, indent=2) + "\n")
        for name, row in rows.items():
            print(section, mask, name, {k: float(f"{v:.4g}") for k, v in row.items()}, flush=True)

    for mask in options.masks:
        if "time" in options.parts:
            keep("time", mask, times(options, mask))
        for name in options.answers if "memory" in options.parts else ():
            row = afresh(options, name, options.length, options.heads, mask)
            del row["seconds"]  # a fresh process's first call, beside whatever else is running
            keep("memory", mask, {name: row})
    for length, width in ADDITIVE if "additive" in options.parts else ():
        for mask, build in ADDITIVE_MASKS.items():
            row = additive_times(length, width, build(length), options.rounds)
            keep("additive", f"{length} x {length}, width {width}", {mask: row})
            results["additive_machine"] = machine()
    for name in options.answers if "long" in options.parts else ():
        keep("long", "full", {name: afresh(options, name, LONG, 1, "full")})
    if "plot" in options.parts:
        plot(results, options.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
