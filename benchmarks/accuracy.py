"""Each kernel and dtype against float64, over the cases of the agreement table, beside eager torch.

python benchmarks/accuracy.py [--kernels sdpa matmul ...] [--out benchmarks/results/accuracy.json]

An error is the largest difference of a reading or gradient from the float64 reference, over the
larger of 1 and the reference's largest number; the table has the worst case. Inputs are rounded to
the dtype before either is computed. Eager torch is the equations, every operation in the dtype.
What is not finite counts as an error of 1.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("TRITON_INTERPRET", "1")  # before anything imports Triton

import torch
from _measure import write
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.agreement.cases import CASES, Case

import regard
from regard.attention import scores
from regard.attention.kernels.choose import KERNELS, KernelRefusedError
from regard.attention.kernels.request import ask

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
Answer = dict[str, Tensor | None]


def additive(case: Case) -> Case:
    """The case with an additive score."""
    widths = case.query[-1], case.key[-1]
    return replace(case, score=lambda: scores.Additive(*widths, 13, bias=True))


def table(kernel: str) -> list[Case]:
    """The cases a kernel is for."""
    if kernel in ("cpu", "triton"):
        return [additive(case) for case in CASES if case.score is None]
    return CASES


def eagerly(**given: Any) -> Tensor:
    value = given["value"]
    request = ask(**given)
    weighed = request.score(request.query, request.key)
    if request.bias is not None:
        weighed = weighed + request.bias
    weights = request.normaliser(weighed, request.readable())
    return torch.einsum("...qk,...kd->...qd", weights, value)


def answer(attend: Any, arguments: dict[str, Any]) -> Answer:
    reading = attend(**arguments)
    leaves = {n: a for n, a in arguments.items() if isinstance(a, Tensor) and a.requires_grad}
    if isinstance(arguments["score"], nn.Module):
        leaves |= dict(arguments["score"].named_parameters())
    mixture = torch.linspace(-1, 1, reading.numel()).sin().view(reading.shape).to(reading.dtype)
    slopes = torch.autograd.grad(
        (reading * mixture).sum(), list(leaves.values()), allow_unused=True
    )
    return {"reading": reading} | dict(zip(leaves, slopes, strict=True))


def error(actual: Tensor | None, exact: Tensor | None) -> float:
    if actual is None or exact is None or not exact.numel():
        return 0.0
    exact = exact.detach()
    gap = (actual.detach().double() - exact).abs().max().item()
    return gap / max(1.0, exact.abs().max().item())


def worst(actual: Answer, exact: Answer) -> dict[str, float]:
    slopes = [0.0, *(error(actual[name], exact[name]) for name in exact if name != "reading")]
    return {"reading": error(actual["reading"], exact["reading"]), "gradients": max(slopes)}


def measure(kernel: str, dtype: torch.dtype) -> dict[str, Any] | None:
    """The worst errors of a kernel and of eager torch over what the kernel serves."""
    row: dict[str, Any] = {"kernel": kernel, "dtype": str(dtype).removeprefix("torch.")}
    kinds: dict[str, dict[str, float]] = {}
    served = 0
    for case in table(kernel):
        built = replace(case, dtype=dtype).build()
        exact = answer(_pinned("reference"), built.arguments(torch.float64))
        try:
            ours = worst(answer(_pinned(kernel), built.arguments(dtype)), exact)
        except KernelRefusedError:
            continue
        served += 1
        try:
            eager = worst(answer(eagerly, built.arguments(dtype)), exact)
        except (NotImplementedError, RuntimeError):  # an operation that torch lacks in this dtype
            eager = {}
        large = "scores of 1e4: " if case.size > 1 else ""
        for who, errors in (("ours", ours), ("eager", eager)):
            mine = kinds.setdefault(large + who, {"reading": 0.0, "gradients": 0.0})
            for name, size in errors.items():
                mine[name] = max(mine[name], size if math.isfinite(size) else 1.0)
    return row | {"cases": served} | kinds if served else None


def _pinned(kernel: str) -> Any:
    def attend(**given: Any) -> Tensor:
        with regard.kernel(kernel):
            return regard.attend(**given)

    return attend


def markdown(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| kernel | dtype | cases | reading | eager torch | gradients | eager torch |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        ours, eager = row["ours"], row["eager"]
        numbers = [ours["reading"], eager["reading"], ours["gradients"], eager["gradients"]]
        cells = [
            f"`{row['kernel']}`",
            row["dtype"],
            str(row["cases"]),
            *(f"{n:.1e}" for n in numbers),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", nargs="+", default=list(KERNELS))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = []
    if options.out and options.out.exists():
        stored = json.loads(options.out.read_text())["accuracy"]
        rows = [row for row in stored if row["kernel"] not in options.kernels]
    for kernel in options.kernels:
        for dtype in DTYPES:
            row = measure(kernel, dtype)
            if row is not None:
                rows.append(row)
                print(row, flush=True)
    order = list(KERNELS)
    rows.sort(key=lambda row: order.index(row["kernel"]))
    print(markdown(rows))
    if options.out:
        write(options.out, {"accuracy": rows})


if __name__ == "__main__":
    main()
