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


def compare(name: str, actual: Tensor | None, exact: Tensor | None, tolerance: float) -> None:
    """Raise unless `got` is `exact` within the tolerance, relative to exact's largest entry."""
    if exact is None or actual is None:
        zero = (actual is None or not actual.any()) and (exact is None or not exact.any())
        if not zero:
            raise AssertionError(f"{name}: one side has a gradient, the other has none")
        return
    if actual.shape != exact.shape:
        raise AssertionError(f"{name}: shape {list(actual.shape)}, expected {list(exact.shape)}")
    if not bool(actual.isfinite().all()):
        raise AssertionError(f"{name}: not finite")
    if exact.numel() == 0:
        return
    error = (actual.double() - exact.double()).abs().max().item()
    bound = tolerance * max(1.0, exact.abs().max().item())
    if not error <= bound:
        raise AssertionError(f"{name}: off by {error:.3g}, allowed {bound:.3g}")
