"""The loop of `listed_logits`, which loads numba."""

from __future__ import annotations

from typing import Any

from regard.attention.kernels.cpu.listed import product_listed
from regard.attention.kernels.cpu.machine import compiled


@compiled
def listed(x: Any, width: Any, lists: Any, own: Any, weight: Any, bias: Any, out: Any) -> None:
    """`product_listed` of whole arrays; `x` and `out` lie flat."""
    product_listed(x, len(own), width, lists, own, weight, bias, out)
