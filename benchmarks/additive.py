"""Additive attention: the compiled kernel beside the same equations in eager torch, under
torch.compile, and in keras (torch and jax), in turns; and how time and memory grow.

python benchmarks/additive.py --parts times,sizes,short,steps,masks,keras,growth --out benchmarks/results/additive.json

Parts that are not asked for keep what the file holds of them. Peers that are not installed are left
out with a note. `--plot` draws the file as a PNG beside it.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import torch
from _measure import interleaved, machine

import regard
from regard.attention import masks
from regard.attention.kernels.additive.cpu.operator import additive
from regard.attention.kernels.additive.steps import attend_step, prepare_steps
from regard.attention.normalisers import Softmax
from regard.attention.scores import Additive, prepare

# batch, queries, keys, hidden, value width
STANDARD = (4, 512, 512, 128, 64)
OTHERS = [(64, 30, 30, 256, 256), (1, 2048, 2048, 128, 64), (64, 4, 30, 256, 256)]
SHORT = (64, 20, 20, 256, 512)  # a batch of sentences
STEPS = [(1, 30), (8, 30), (64, 30), (320, 15)]  # sentences and their words, of a recurrent decoder
D_QUERY, D_MEMORY, D_HIDDEN = 384, 512, 256  # as in es-en-recurrent
LENGTHS = (256, 512, 1024, 2048, 4096, 8192, 16384)
EAGER = 2048  # the longest that eager torch is asked for: hidden layers of 2 GB, several of them

GROWTH = """
import sys, time, torch
from regard.attention.kernels.additive.cpu.operator import additive
kind, length = sys.argv[1], int(sys.argv[2])
torch.set_num_threads(int(sys.argv[3]))
def cpu(a, c, w, v):
    return additive(a, c, w, v, *(None,) * 6, 0.0, 1.0)[0]
def eager(a, c, w, v):
    return torch.softmax(torch.tanh(a[:, :, None] + c[:, None]) @ w, -1) @ v
def run(n):
    a, c, v = (torch.randn(1, n, d).requires_grad_() for d in (128, 128, 64))
    w = (torch.randn(128) / 128**0.5).requires_grad_()
    start = time.perf_counter()
    {"cpu": cpu, "eager": eager}[kind](a, c, w, v).sum().backward()
    return time.perf_counter() - start
def memory(which):  # kilobytes: VmRSS now, VmHWM at most since the peak was forgotten
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(which))
run(64)
# Compiling takes far more than the loops: its peak must not hide theirs.
with open("/proc/self/clear_refs", "w") as forget:
    forget.write("5")
before = memory("VmRSS")
seconds = [run(length) for _ in range(1 if length > 8192 else 3)]
print(sorted(seconds)[len(seconds) // 2], (memory("VmHWM") - before) / 1024)
"""


def tensors(size: tuple[int, ...]) -> list[torch.Tensor]:
    batch, queries, keys, hidden, width = size
    torch.manual_seed(0)
    shapes = ((batch, queries, hidden), (batch, keys, hidden), (hidden,), (batch, keys, width))
    inputs = [torch.randn(shape) for shape in shapes]
    inputs[2] /= hidden**0.5
    return [tensor.requires_grad_() for tensor in inputs]


def eager(a: torch.Tensor, c: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax(torch.tanh(a[:, :, None] + c[:, None]) @ w, -1) @ v


def cpu(a: torch.Tensor, c: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return additive(a, c, w, v, *(None,) * 6, 0.0, 1.0)[0]


@cache
def compiled() -> Any:
    return torch.compile(eager, fullgraph=True, dynamic=False)


def times(size: tuple[int, ...], rounds: int, compile_too: bool) -> dict[str, Any]:
    """Seconds of forward, and of forward and backward, and how many times as fast as each peer."""
    inputs = tensors(size)
    functions = {"eager": eager, "cpu": cpu} | (
        {"torch.compile": compiled()} if compile_too else {}
    )

    def forward(function: Any) -> Any:
        with torch.no_grad():
            return function(*inputs)

    def train(function: Any) -> None:
        torch.autograd.grad(function(*inputs).sum(), inputs)

    runs = {}
    for name, function in functions.items():
        runs[f"{name} forward"] = lambda function=function: forward(function)
        runs[f"{name} both"] = lambda function=function: train(function)
    return {"size": size, **_compared(interleaved(runs, rounds, time.process_time))}


def steps(batch: int, words: int, rounds: int) -> dict[str, Any]:
    """One query of each sentence, masked: eager torch with projected keys, `attend`, and a decoder's step."""
    torch.manual_seed(0)
    score = Additive(D_QUERY, D_MEMORY, D_HIDDEN)
    query, memory = torch.randn(batch, 1, D_QUERY), torch.randn(batch, words, D_MEMORY)
    readable = torch.arange(words) < torch.randint(words // 2, words + 1, (batch, 1, 1))
    quick, keys = prepare(score, memory)
    keys = keys.detach().requires_grad_()
    with torch.no_grad():  # as in a translation
        translating = prepare_steps(quick, keys, Softmax(), readable)
    step, stored = prepare_steps(quick, keys, Softmax(), readable)
    stored = stored.detach().requires_grad_()
    leaves = [query.requires_grad_(), keys, stored, score.query_weight, score.weight]

    def eager() -> torch.Tensor:
        hidden = torch.tanh((query @ score.query_weight.mT)[:, 0, None] + keys)
        scores = (hidden @ score.weight)[:, None].masked_fill(~readable, -torch.inf)
        return torch.softmax(scores, -1) @ memory

    def attended() -> torch.Tensor:
        return regard.attend(query, keys, memory, score=quick, mask=readable)

    def stepped() -> torch.Tensor:
        quick, keys = (step, stored) if torch.is_grad_enabled() else translating
        return attend_step(query, keys, memory, score=quick, mask=readable)

    runs: dict[str, Any] = {}
    for name, function in {"eager": eager, "attend": attended, "step": stepped}.items():
        runs[f"{name} forward"] = lambda function=function: _without_gradients(function)
        runs[f"{name} both"] = lambda function=function: torch.autograd.grad(
            function().sum(), leaves, allow_unused=True
        )
    torch.testing.assert_close(stepped(), eager())
    return {
        "batch": batch,
        "words": words,
        **_compared(interleaved(runs, rounds, time.process_time), "step"),
    }


def _without_gradients(function: Any) -> Any:
    with torch.no_grad():
        return function()


def structured(length: int, rounds: int) -> dict[str, float]:
    """Forward and backward of a mask, over that of a simpler one that needs as many pairs or more."""
    a, c, _, v = tensors((1, length, length, 64, 64))
    score = Additive(64, 64, 64)
    size = length // 8
    sentences = [slice(n, n + size) for n in range(0, length, size)]

    def run(mask: Any, rows: slice = slice(None)) -> None:
        query, key, value = (side[:, rows] for side in (a, c, v))
        regard.attend(query, key, value, score=score, mask=mask).sum().backward()

    numbers = torch.arange(length) // size
    causal = masks.causal(align="start")
    runs: dict[str, Any] = {
        "none": lambda: run(None),
        "causal": lambda: run(causal),
        "causal & padding": lambda: run(causal & masks.padding([length])),
        "prefix": lambda: run(causal | masks.padding([length // 4])),
        "band": lambda: run(masks.band(128, 0)),
        "documents": lambda: run(masks.documents(numbers)),
        "one by one": lambda: [run(None, sentence) for sentence in sentences],
    }
    seconds = interleaved(runs, rounds, time.process_time)
    pairs = {
        "causal": "none", "causal & padding": "causal", "prefix": "causal", "band": "none",
        "documents": "one by one",
    }  # fmt: skip
    return {f"{name} / {other}": seconds[name] / seconds[other] for name, other in pairs.items()}


def _compared(seconds: dict[str, float], ours: str = "cpu") -> dict[str, Any]:
    ratios = {
        name: seconds[name] / seconds[f"{ours} {name.rsplit(' ', 1)[1]}"]
        for name in seconds
        if not name.startswith(ours)
    }
    return {"seconds": seconds, "times as fast as": ratios}


def keras_times(backend: str, rounds: int) -> dict[str, Any]:
    """keras.layers.AdditiveAttention with the same features, and the same weights as its `scale`."""
    for needed in ("keras", backend):
        if importlib.util.find_spec(needed) is None:
            return {"left out": f"{needed} is not installed"}
    os.environ["KERAS_BACKEND"] = backend
    import keras

    inputs = tensors(STANDARD)
    a, c, w, v = inputs
    layer = keras.layers.AdditiveAttention()
    layer.build([a.shape, v.shape, c.shape])
    layer.scale.assign(w.detach().numpy())
    runs = {"cpu forward": lambda: _forward(cpu, inputs), "cpu both": lambda: _train(cpu, inputs)}
    if backend == "torch":
        weights = [a, c, layer.scale.value, v]

        def read(a: Any, c: Any, _: Any, v: Any) -> Any:
            return layer([a, v, c])

        runs["keras forward"] = lambda: _forward(read, weights)
        runs["keras both"] = lambda: _train(read, weights)
        theirs = _forward(read, weights).detach()
    else:
        import jax

        numbers = [jax.numpy.asarray(x.detach().numpy()) for x in inputs]

        def pure(a: Any, c: Any, w: Any, v: Any) -> Any:
            return layer.stateless_call([w], [], [a, v, c])[0]

        quick = jax.jit(pure)
        slopes = jax.jit(jax.grad(lambda *x: pure(*x).sum(), argnums=(0, 1, 2, 3)))
        runs["keras forward"] = lambda: jax.block_until_ready(quick(*numbers))
        runs["keras both"] = lambda: jax.block_until_ready(slopes(*numbers))
        theirs = torch.tensor(quick(*numbers).__array__())
    error = (theirs - _forward(cpu, inputs)).abs().max().item()
    compared = _compared(interleaved(runs, rounds, time.process_time))
    return {"keras": keras.__version__, "largest difference": error, **compared}


def _forward(function: Any, inputs: list[Any]) -> torch.Tensor:
    with torch.no_grad():
        return function(*inputs)


def _train(function: Any, inputs: list[Any]) -> None:
    torch.autograd.grad(function(*inputs).sum(), inputs)


def growth(kind: str, length: int, threads: int) -> dict[str, float]:
    """Forward and backward in a fresh process: seconds, and peak megabytes over its baseline."""
    command = [sys.executable, "-c", GROWTH, kind, str(length), str(threads)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    seconds, megabytes = map(float, printed.split())
    return {"seconds": seconds, "megabytes": megabytes}


def plot(path: Path) -> None:
    """Bars of the times, and lines of what grows."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    results = json.loads(path.read_text())
    figure, (bars, time, memory) = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    for shift, kind in enumerate(("forward", "both")):
        seconds = {n: s for n, s in results["times"]["seconds"].items() if n.endswith(kind)}
        names = [name.rsplit(" ", 1)[0] for name in seconds]
        places = [k + 0.4 * shift for k in range(len(names))]
        label = "forward" if kind == "forward" else "forward and backward"
        bar_group = bars.bar(places, [1000 * s for s in seconds.values()], 0.38, label=label)
        bars.bar_label(bar_group, fmt="%.3g")
        bars.set_xticks([place - 0.2 * shift + 0.2 * (1 - shift) for place in places], names)
    bars.set(yscale="log", ylabel="milliseconds", title="batch 4, 512 x 512, hidden 128")
    bars.set_ylim(top=2e4)  # room for the legend
    bars.legend()
    for kind in ("cpu", "eager"):
        rows = results["growth"][kind]
        lengths = [int(n) for n in rows]
        time.plot(lengths, [row["seconds"] for row in rows.values()], "o-", label=kind)
        memory.plot(lengths, [row["megabytes"] for row in rows.values()], "o-", label=kind)
    title = "forward and backward, batch 1"
    for axes, unit in ((time, "seconds"), (memory, "peak megabytes")):
        axes.set(xscale="log", yscale="log", xlabel="queries = keys", ylabel=unit, title=title)
        axes.set_xticks(LENGTHS, [str(n) for n in LENGTHS], rotation=45)
        axes.legend()
    figure.savefig(path.with_suffix(".png"), dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--parts", default="times", help="of times, sizes, short, steps, masks, keras, jax, growth"
    )
    parser.add_argument("--lengths", help="of growth; default all")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--plot", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    names = set(filter(None, options.parts.split(",")))
    results: dict[str, Any] = {}
    if options.out and options.out.exists():
        results = json.loads(options.out.read_text())
    if "times" in names:
        results["times"] = times(STANDARD, options.rounds, True)
    if "sizes" in names:
        results["sizes"] = [times(size, options.rounds, False) for size in OTHERS]
    if "short" in names:
        results["short"] = times(SHORT, options.rounds, True)
    if "steps" in names:
        results["steps"] = [steps(*size, options.rounds) for size in STEPS]
    if "masks" in names:
        results["masks"] = {"length": 2048, **structured(2048, options.rounds)}
    for backend in ("torch", "jax"):
        if ("keras" if backend == "torch" else "jax") in names:
            results[f"keras on {backend}"] = keras_times(backend, options.rounds)
    if "growth" in names:
        lengths = tuple(map(int, options.lengths.split(","))) if options.lengths else LENGTHS
        table = results.setdefault("growth", {"cpu": {}, "eager": {}})
        for length in lengths:
            for kind in ("cpu", "eager") if length <= EAGER else ("cpu",):
                table[kind][str(length)] = growth(kind, length, options.threads)
    for section in names:
        results.setdefault("machines", {})[section] = machine()
    print(
        json.dumps(
            {name: section for name, section in results.items() if name != "machines"}, indent=1
        )
    )
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(results, indent=2) + "\n")
        if options.plot:
            plot(options.out)


if __name__ == "__main__":
    main()
