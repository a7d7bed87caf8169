"""The arithmetic a training runs in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

PRECISIONS = ("float32", "medium", "bfloat16")


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
