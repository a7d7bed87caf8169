"""Additive attention: the compiled kernel beside the same equations in eager torch.

python benchmarks/additive.py [--threads 2] [--rounds 5] [--quick] [--out benchmarks/results/additive.json]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from _measure import interleaved, write

from regard.attention.kernels.cpu.operator import additive

# batch, queries, keys, hidden, value width
STANDARD = (4, 512, 512, 128, 64)
OTHERS = [(64, 30, 30, 256, 256), (1, 2048, 2048, 128, 64), (64, 4, 30, 256, 256)]

MEMORY = """
import sys, torch
from regard.attention.kernels.cpu.operator import additive
torch.set_num_threads(int(sys.argv[2]))
def run(n):
    a, c, v = (torch.randn(1, n, d).requires_grad_() for d in (128, 128, 64))
    w = torch.randn(128, requires_grad=True)
    additive(a, c, w, v, *(None,) * 6, 0.0, 1.0)[0].sum().backward()
def memory(kind):  # kilobytes: VmRSS now, VmHWM at most since the peak was forgotten
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(kind))
run(64)
# Compiling takes far more than the loops: its peak must not hide theirs.
with open("/proc/self/clear_refs", "w") as forget:
    forget.write("5")
before = memory("VmRSS")
run(int(sys.argv[1]))
print((memory("VmHWM") - before) / 1024)
"""


def tensors(size: tuple[int, ...]) -> list[torch.Tensor]:
    batch, queries, keys, hidden, width = size
    torch.manual_seed(0)
    shapes = ((batch, queries, hidden), (batch, keys, hidden), (hidden,), (batch, keys, width))
    given = [torch.randn(shape) for shape in shapes]
    given[2] /= hidden**0.5
    return [tensor.requires_grad_() for tensor in given]


def eager(a: torch.Tensor, c: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax(torch.tanh(a[:, :, None] + c[:, None]) @ w, -1) @ v


def compiled(a: torch.Tensor, c: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return additive(a, c, w, v, *(None,) * 6, 0.0, 1.0)[0]


def times(size: tuple[int, ...], rounds: int) -> dict[str, Any]:
    """Seconds of forward, and of forward and backward, and how many times as fast as eager."""
    given = tensors(size)

    def forward(function: Any) -> Any:
        with torch.no_grad():
            return function(*given)

    def both(function: Any) -> None:
        torch.autograd.grad(function(*given).sum(), given)

    taken = interleaved(
        {
            "eager forward": lambda: forward(eager),
            "cpu forward": lambda: forward(compiled),
            "eager both": lambda: both(eager),
            "cpu both": lambda: both(compiled),
        },
        rounds,
    )
    ratios = {w: taken[f"eager {w}"] / taken[f"cpu {w}"] for w in ("forward", "both")}
    return {"size": size, "seconds": taken, "times as fast": ratios}


def memory(length: int, threads: int) -> float:
    """Peak resident megabytes of a fresh process over its baseline, forward and backward."""
    command = [sys.executable, "-c", MEMORY, str(length), str(threads)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="the standard size only, no memory")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    sizes = [STANDARD] if options.quick else [STANDARD, *OTHERS]
    results: dict[str, Any] = {"times": [times(size, options.rounds) for size in sizes]}
    if not options.quick:
        lengths = (256, 1024, 4096)
        results["megabytes"] = {n: memory(n, options.threads) for n in lengths}
    print(results)
    if options.out:
        write(options.out, results)


if __name__ == "__main__":
    main()
