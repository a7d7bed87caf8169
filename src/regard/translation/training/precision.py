"""The arithmetic a training runs in, chosen by measuring it on the machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

PRECISIONS = ("float32", "medium", "bfloat16")
_TRIALS = 3


@contextmanager
def products(name: str) -> Iterator[None]:
    """Let products of float32 be rounded as `name` says, forwards and backwards: only `medium` lets them."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium" if name == "medium" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def arithmetic(name: str, device: torch.device) -> Iterator[None]:
    """Run in `float32`, `medium` (float32 whose products may round to bfloat16) or `bfloat16` autocast.

    Autocast is for the way forward, and what it chose holds on the way back; `products` is for both.
    """
    with (
        products(name),
        torch.autocast(device.type, dtype=torch.bfloat16, enabled=name == "bfloat16"),
    ):
        yield


def quickest(
    forward: Callable[[], Tensor], after: Callable[[], object], device: torch.device
) -> str:
    """The precision in which the least time is taken by a loss on a real batch, its gradients and what comes after."""
    timings: dict[str, float] = {}
    for name in PRECISIONS:
        seconds = []
        for _ in range(_TRIALS):
            start = time.perf_counter()
            with products(name):
                with arithmetic(name, device):
                    loss = forward()
                loss.backward()
                after()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            seconds.append(time.perf_counter() - start)
        timings[name] = min(seconds)
    # float32 is kept where another is not clearly quicker.
    best = min(timings, key=lambda name: timings[name])
    return best if timings[best] < 0.95 * timings["float32"] else "float32"
