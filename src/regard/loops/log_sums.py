"""The two loops of a log-sum-exp over a whole row of any length: its largest number, and the sum of exponentials."""

from typing import Any

import numpy as np

from regard.loops.compiling import inner, inner_sum, lanes
from regard.loops.exponentials import exponential


@inner
def peak_of(row: Any) -> Any:
    """The largest number; -inf if all are, and a NaN may be lost."""
    best = row[0]
    for i in range(np.uint64(row.size)):
        best = row[i] if row[i] > best else best
    return best


@inner_sum
def exponential_sum(row: Any, peak: Any) -> Any:
    """The sum of e^(x - peak)."""
    lanes()
    total = np.float32(0)
    for i in range(np.uint64(row.size)):
        total += exponential(row[i] - peak)
    return total
