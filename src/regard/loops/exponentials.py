"""e^x in loops that vectorise: polynomials in place of calls of the C library."""

import math
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from regard.loops.compiling import (
    bits_of_double,
    bits_of_single,
    double_of_bits,
    inner,
    single_of_bits,
)

_F = np.float32
LOG2E, MAGIC = _F(1.4426950408889634), _F(1.5 * 2**23)
HIGH, LOW = _F(0.693359375), _F(-2.12194440e-4)  # ln 2 in two parts, Cephes
F0, F2, F3, F4, F5, F6, F7 = (_F(1 / math.factorial(k)) for k in (0, 2, 3, 4, 5, 6, 7))
LEAST, MOST = _F(-87.0), _F(88.0)

LOG2E64, MAGIC64 = 1.4426950408889634, 1.5 * 2.0**52
HIGH64, LOW64 = 6.93145751953125e-1, 1.42860682030941723212e-6
D2, D3, D4, D5, D6, D7 = (1 / math.factorial(k) for k in range(2, 8))
D8, D9, D10, D11, D12, D13 = (1 / math.factorial(k) for k in range(8, 14))
LEAST64, MOST64 = -708.0, 709.0


@inner
def _exponential32(x: Any) -> Any:
    """e^x within 1.5 units in the last place, from e^-87 to e^88; x is clamped to that range."""
    x = LEAST if x < LEAST else x
    x = MOST if x > MOST else x
    shifted = x * LOG2E + MAGIC
    n = shifted - MAGIC
    f = (x - n * HIGH) - n * LOW
    p = f * F7 + F6
    p = p * f + F5
    p = p * f + F4
    p = p * f + F3
    p = p * f + F2
    p = (p * f + F0) * f + F0
    power = (bits_of_single(shifted) + np.int32(127)) << np.int32(23)
    return p * single_of_bits(np.int32(power))


@inner
def _exponential64(x: Any) -> Any:
    x = LEAST64 if x < LEAST64 else x
    x = MOST64 if x > MOST64 else x
    shifted = x * LOG2E64 + MAGIC64
    n = shifted - MAGIC64
    f = (x - n * HIGH64) - n * LOW64
    p = f * D13 + D12
    p = p * f + D11
    p = p * f + D10
    p = p * f + D9
    p = p * f + D8
    p = p * f + D7
    p = p * f + D6
    p = p * f + D5
    p = p * f + D4
    p = p * f + D3
    p = p * f + D2
    p = (p * f + 1.0) * f + 1.0
    power = (bits_of_double(shifted) + np.int64(1023)) << np.int64(52)
    return p * double_of_bits(power)


def exponential(x: Any) -> Any:
    """e^x in the precision of x; NaN stays NaN."""
    return np.exp(x)


@overload(exponential, jit_options={"fastmath": {"contract"}})
def _overload(x: Any) -> Any:
    compiled = _exponential32 if x == types.float32 else _exponential64

    def chosen(x: Any) -> Any:
        return compiled(x)

    return chosen
