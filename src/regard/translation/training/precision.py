"""The arithmetic a training runs in, chosen by measuring it on the machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

PRECISIONS = ("float32", "medium", "bfloat16")
_TRIALS = 3


@contextmanager
def arithmetic(name: str, device: torch.device) -> Iterator[None]:
    """Run in `float32`, `medium` (float32 whose products may round to bfloat16) or `bfloat16` autocast."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium" if name == "medium" else "highest")
    try:
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=name == "bfloat16"):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def quickest(step: Callable[[], object], device: torch.device) -> str:
    """The precision in which `step` (forward and backward on a real batch) takes the least time."""
    timings: dict[str, float] = {}
    for name in PRECISIONS:
        seconds = []
        for _ in range(_TRIALS):
            start = time.perf_counter()
            with arithmetic(name, device):
                step()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            seconds.append(time.perf_counter() - start)
        timings[name] = min(seconds)
    # float32 is kept where another is not clearly quicker.
    best = min(timings, key=lambda name: timings[name])
    return best if timings[best] < 0.95 * timings["float32"] else "float32"
