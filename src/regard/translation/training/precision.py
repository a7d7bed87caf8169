"""The arithmetic of a training: float32, float32 with rounded products, or bfloat16."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

PRECISIONS = ("float32", "medium", "bfloat16")


@contextmanager
def products(name: str) -> Iterator[None]:
    """Allow rounding in products of float32 if `name` is `medium`, and only then. For forward and backward pass."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium" if name == "medium" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def arithmetic(name: str, device: torch.device) -> Iterator[None]:
    """Compute in `float32`, `medium` (float32 whose products may round to bfloat16) or `bfloat16` autocast.

    For the forward pass: the backward pass then uses the same types, and needs `products` only.
    """
    with (
        products(name),
        torch.autocast(device.type, dtype=torch.bfloat16, enabled=name == "bfloat16"),
    ):
        yield
