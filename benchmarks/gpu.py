"""Attention on a GPU: additive scores beside eager torch and torch.compile, and masks beside compiled flex_attention
and torch's fused attention with the mask written out.

python benchmarks/gpu.py [--parts masks additive] [--out benchmarks/results/gpu.json]

Milliseconds are medians between events on the GPU, in turns of the peers, after two runs that are not counted; they
hold the time of Python where the GPU waits for it. Rows "graph" replay a CUDA graph, without Python. Megabytes are the
peak of a run over what was allocated before it. A peer that fails is named with the reason. With warm
caches of the compilers it takes two and a half minutes; the file is written after each row.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from _measure import write
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import regard
from regard import masks
from regard.scores import Additive

# batch, queries, keys, hidden, value width
SIZES = [
    (64, 20, 20, 256, 256), (64, 20, 20, 1024, 1024), (64, 1, 30, 256, 512),  # of decoders
    (16, 64, 64, 256, 256), (8, 128, 128, 256, 256), (4, 512, 512, 128, 64), (16, 512, 512, 512, 512),
    (1, 2048, 2048, 128, 64), (1, 8192, 8192, 128, 64), (1, 16384, 16384, 128, 64),
]  # fmt: skip
HALF = [(64, 20, 20, 256, 256), (1, 2048, 2048, 128, 64)]  # in bfloat16 too
FLOAT, BRAIN = torch.float32, torch.bfloat16
LARGEST = 1 << 31  # numbers of a hidden layer that the peers are asked to store
HEADS, WIDTH, WINDOW, DOCUMENTS = 8, 64, 128, 8
CAUSAL = masks.causal(align="start")
SECONDS = 0.1  # for the repetitions of a run

Run = Callable[[], Any]


def measured(runs: dict[str, Run]) -> dict[str, Any]:
    """Milliseconds and megabytes of each run."""
    results: dict[str, Any] = {"milliseconds": {}, "megabytes": {}}
    repeats, able = {}, {}
    for name, run in runs.items():
        try:
            torch.cuda.synchronize()
            run()
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            base, start = torch.cuda.memory_allocated(), time.perf_counter()
            run()
            torch.cuda.synchronize()
            seconds = time.perf_counter() - start
            results["megabytes"][name] = (torch.cuda.max_memory_allocated() - base) / 1e6
            repeats[name], able[name] = max(3, min(30, int(SECONDS / seconds))), run
        except (torch.OutOfMemoryError, RuntimeError) as error:
            results["milliseconds"][name] = f"{type(error).__name__}: {str(error)[:80]}"
        torch.cuda.empty_cache()
    times: dict[str, list[float]] = {name: [] for name in able}
    for turn in range(max(repeats.values(), default=0)):
        for name, run in able.items():
            if turn < repeats[name]:
                times[name].append(_milliseconds(run))
    results["milliseconds"] |= {name: statistics.median(taken) for name, taken in times.items()}
    return results


def _milliseconds(run: Run) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    run()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


def eager(a: Tensor, c: Tensor, w: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(torch.tanh(a[:, :, None] + c[:, None]) @ w, -1) @ v


def additive(size: tuple[int, ...], dtype: torch.dtype) -> dict[str, Any]:
    """Our kernels, pinned, and the equations with the same projections, forward and with gradients."""
    batch, queries, keys, hidden, width = size
    torch.manual_seed(0)
    score = Additive(hidden, hidden, hidden).to("cuda", dtype)
    sides = [
        torch.randn(batch, length, wide, device="cuda", dtype=dtype).requires_grad_()
        for length, wide in ((queries, hidden), (keys, hidden), (keys, width))
    ]
    torch.compiler.reset()
    core = torch.compile(eager, dynamic=False)

    def plain(core: Callable[..., Tensor], query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return core(score.query_features(query), score.key_features(key), score.weight, value)

    def pinned(kernel: str, *sides: Tensor) -> Tensor:
        with regard.kernel(kernel):
            return regard.attend(*sides, score=score)

    ways: dict[str, Callable[..., Tensor]] = {"triton": partial(pinned, "triton")}
    if batch * queries * keys * hidden <= LARGEST:
        ways["reference"] = partial(pinned, "reference")
        ways["eager"] = partial(plain, eager)
        ways["torch.compile"] = partial(plain, core)
    kernel = regard.explain(*sides, score=score).kernel
    row = {"size": size, "dtype": str(dtype), "kernel": kernel}
    return row | passes(ways, sides, [*sides, *score.parameters()])


def passes(
    ways: dict[str, Callable[..., Tensor]], sides: list[Tensor], leaves: list[Tensor]
) -> dict[str, Any]:
    """The measurements of the forward pass and of both, and of their graphs."""
    results = {}
    for name, runs in runs_of(ways, sides, leaves).items():
        results[name] = measured(runs)
        replays = {}
        for way, run in runs.items():
            try:
                replays[way] = graphed(run)
            except RuntimeError as error:
                results[f"{way} in no graph"] = {"reason": str(error)[:100]}
        results["graph" if name == "forward" else "graph, both"] = measured(replays)
    return results


def runs_of(
    ways: dict[str, Callable[..., Tensor]], sides: list[Tensor], leaves: list[Tensor]
) -> dict[str, dict[str, Run]]:
    """The forward pass of each way, and both passes."""

    def forward(way: Callable[..., Tensor]) -> None:
        with torch.no_grad():
            way(*sides)

    def train(way: Callable[..., Tensor]) -> None:
        reading = way(*sides)
        torch.autograd.grad(reading, leaves, torch.ones_like(reading))

    return {
        name: {way: partial(run, function) for way, function in ways.items()}
        for name, run in (("forward", forward), ("both", train))
    }


def graphed(run: Run) -> Run:
    """A replay of a run from a CUDA graph: without the time of Python."""
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.empty_cache()  # a graph has memory of its own
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def length_of(keys: int) -> int:
    """The keys that are no padding: two of five."""
    return 2 * keys // 5


# The mask, and the same as a function for flex_attention.
MASKS: dict[str, tuple[Callable[[int], masks.Mask], Callable[[int], Any]]] = {
    "window": (
        lambda n: masks.band(WINDOW, 0),
        lambda n: lambda b, h, q, k: (q >= k) & (q - k <= WINDOW),
    ),
    "causal & padding": (
        lambda n: CAUSAL & masks.padding(torch.tensor([length_of(n)], device="cuda")),
        lambda n: lambda b, h, q, k: (q >= k) & (k < length_of(n)),
    ),
    "padding": (
        lambda n: masks.padding(torch.tensor([length_of(n)], device="cuda")),
        lambda n: lambda b, h, q, k: k < length_of(n),
    ),
    "documents": (
        lambda n: masks.documents(torch.arange(n, device="cuda") * DOCUMENTS // n),
        lambda n: lambda b, h, q, k: q * DOCUMENTS // n == k * DOCUMENTS // n,
    ),
    "prefix": (
        lambda n: CAUSAL | masks.padding(torch.tensor([n // 4], device="cuda")),
        lambda n: lambda b, h, q, k: (q >= k) | (k < n // 4),
    ),
}


def masked(name: str, length: int, dtype: torch.dtype) -> dict[str, Any]:
    torch.manual_seed(0)
    rule, function = MASKS[name][0](length), MASKS[name][1](length)
    sides = [
        torch.randn(1, HEADS, length, WIDTH, device="cuda", dtype=dtype).requires_grad_()
        for _ in range(3)
    ]
    dense = rule.dense((1, HEADS), length, length, "cuda")
    torch.compiler.reset()
    blocks = create_block_mask(function, None, None, length, length, device="cuda")
    ways: dict[str, Callable[..., Tensor]] = {
        "ours": partial(regard.attend, mask=rule),
        "written out": partial(F.scaled_dot_product_attention, attn_mask=dense),
        "flex": partial(torch.compile(flex_attention, dynamic=False), block_mask=blocks),
    }
    with torch.no_grad():
        expected = ways["written out"](*sides)
        error = (ways["ours"](*sides) - expected).abs().max().item()
    kernel = regard.explain(*sides, mask=rule).kernel
    row = {"mask": name, "length": length, "dtype": str(dtype), "kernel": kernel, "error": error}
    return row | {"mask itself, megabytes": length**2 / 1e6} | passes(ways, sides, sides)


# Masks, lengths and precisions, those that matter most first.
PLAIN = "window", "causal & padding"
MASKED = [
    *((name, 8192, BRAIN) for name in MASKS),
    *((name, length, dtype) for length in (16384, 2048) for dtype in (BRAIN, FLOAT) for name in PLAIN),
    *((name, 8192, FLOAT) for name in MASKS),
    *((name, 16384, BRAIN) for name in MASKS if name not in PLAIN),
]  # fmt: skip
ADDITIVE = [(size, FLOAT) for size in SIZES] + [(size, BRAIN) for size in HALF]


def show(row: dict[str, Any]) -> None:
    """One line: milliseconds and megabytes of each way."""
    head = [str(row[key]) for key in ("size", "mask", "length", "dtype", "kernel") if key in row]
    for name in ("forward", "both", "graph", "graph, both"):
        if name not in row:
            continue
        times, room = row[name]["milliseconds"], row[name]["megabytes"]
        cells = [
            f"{way} {taken:.3f} ({room[way]:.0f})" if isinstance(taken, float) else f"{way} {taken}"
            for way, taken in times.items()
        ]
        print(*head, name, *cells, sep=" | ", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", nargs="+", default=["masks", "additive"])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    import triton

    results: dict[str, Any] = {
        "gpu": torch.cuda.get_device_name(),
        "cuda": torch.version.cuda,
        "triton": triton.__version__,
    }
    rows = {"masks": (masked, MASKED), "additive": (additive, ADDITIVE)}
    for part in options.parts:
        measure, table = rows[part]
        for arguments in table:
            keep(options.out, results, part, measure(*arguments))


def keep(out: Path | None, results: dict[str, Any], section: str, row: dict[str, Any]) -> None:
    """Show a row, and write all rows so far."""
    show(row)
    results.setdefault(section, []).append(row)
    if out:
        write(out, results)


if __name__ == "__main__":
    main()
