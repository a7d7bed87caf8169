"""The loop of `listed_logits`, which loads numba."""

from __future__ import annotations

from typing import Any

from regard.loops.compiling import compiled
from regard.loops.products import product_listed


@compiled
def listed(x: Any, width: Any, lists: Any, own: Any, weight: Any, bias: Any, out: Any) -> None:
    """`product_listed` of whole arrays; `x` and `out` lie flat."""
    product_listed(x, len(own), width, lists, own, weight, bias, out)
