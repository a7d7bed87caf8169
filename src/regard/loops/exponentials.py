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

LOG2E = 1.4426950408889634


def _polynomial(
    kind: Any,
    casts: Any,
    *,
    digits: int,
    degree: int,
    ln2: tuple[float, float],
    clamp: tuple[float, float],
) -> Any:
    """e^x within 1.5 units in the last place.

    Args:
        kind: the type of the numbers.
        casts: the type of whole numbers that is as wide, and the bits of a number and back.
        digits: binary digits of the mantissa.
        degree: of the polynomial.
        ln2: its two parts (Cephes).
        clamp: the least and the greatest x; others are set to these.
    """
    integer, bits_of, number_of_bits = casts
    log2e, magic = kind(LOG2E), kind(1.5 * 2**digits)
    high, low, minimum, maximum = map(kind, (*ln2, *clamp))
    leading, *following = (kind(1 / math.factorial(k)) for k in range(degree, -1, -1))
    factors, shift, bias = tuple(following), integer(digits), integer(np.finfo(kind).maxexp - 1)

    @inner
    def exponential_of(x: Any) -> Any:
        # e^x = 2^n e^r: n, the whole number next to x / ln 2, ends up in the last bits of `shifted`.
        x = minimum if x < minimum else x
        x = maximum if x > maximum else x
        shifted = x * log2e + magic
        n = shifted - magic
        remainder = (x - n * high) - n * low
        # e^r by Horner's rule, and 2^n by its bits.
        polynomial = leading
        for factor in factors:
            polynomial = polynomial * remainder + factor
        power = (bits_of(shifted) + bias) << shift
        return polynomial * number_of_bits(integer(power))

    return exponential_of


_SINGLE = np.int32, bits_of_single, single_of_bits
_DOUBLE = np.int64, bits_of_double, double_of_bits
_single = _polynomial(
    np.float32, _SINGLE, digits=23, degree=7, ln2=(0.693359375, -2.12194440e-4), clamp=(-87.0, 88.0)
)
_double = _polynomial(
    np.float64,
    _DOUBLE,
    digits=52,
    degree=13,
    ln2=(6.93145751953125e-1, 1.42860682030941723212e-6),
    clamp=(-708.0, 709.0),
)


def exponential(x: Any) -> Any:
    """e^x in the precision of x; NaN stays NaN."""
    return np.exp(x)


@overload(exponential, jit_options={"fastmath": {"contract"}})
def _overload(x: Any) -> Any:
    compiled = _single if x == types.float32 else _double

    def implementation(x: Any) -> Any:
        return compiled(x)

    return implementation
