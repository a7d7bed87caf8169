"""The one comparing helper of the agreement tests. It raises; it returns nothing to forget."""

from __future__ import annotations

import torch
from torch import Tensor

TOLERANCE = {
    torch.float64: 1e-12,
    torch.float32: 3e-6,
    torch.float16: 4e-3,
    torch.bfloat16: 3e-2,
}


def compare(name: str, got: Tensor | None, exact: Tensor | None, tolerance: float) -> None:
    """Raise unless `got` is `exact` within the tolerance, relative to exact's largest entry."""
    if exact is None or got is None:
        zero = (got is None or not got.any()) and (exact is None or not exact.any())
        if not zero:
            raise AssertionError(f"{name}: one side has a gradient, the other has none")
        return
    if got.shape != exact.shape:
        raise AssertionError(f"{name}: shape {list(got.shape)}, expected {list(exact.shape)}")
    if not bool(got.isfinite().all()):
        raise AssertionError(f"{name}: not finite")
    if exact.numel() == 0:
        return
    error = (got.double() - exact.double()).abs().max().item()
    bound = tolerance * max(1.0, exact.abs().max().item())
    if not error <= bound:
        raise AssertionError(f"{name}: off by {error:.3g}, allowed {bound:.3g}")
