"""Products with the few words of a list: one dot product each."""

from typing import Any

import numpy as np

from regard.loops.compiling import compiled, inner
from regard.loops.rows import dot


@inner
def product_listed(
    x: Any, rows: Any, width: Any, lists: Any, own: Any, weight: Any, bias: Any, out: Any
) -> None:
    """out[r, i] = W[word] x[r] + b[word], word = lists[own[r], i]; -inf where word is -1.

    Neighbouring rows with the same list share each read of a weight. `x` and `out` are flat.
    """
    count, first = lists.shape[1], 0
    while first < rows:
        last = first + 1
        while last < rows and own[last] == own[first]:
            last += 1
        for i in range(count):
            word = lists[own[first], i]
            for r in range(first, last):
                if word < 0:
                    out[r * count + i] = -np.inf
                else:
                    out[r * count + i] = dot(x, r * width, weight[word], 0, width) + bias[word]
        first = last


@compiled
def listed(x: Any, width: Any, lists: Any, own: Any, weight: Any, bias: Any, out: Any) -> None:
    """`product_listed` of whole arrays."""
    product_listed(x, len(own), width, lists, own, weight, bias, out)
