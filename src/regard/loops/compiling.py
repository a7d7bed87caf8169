"""How the loops are compiled: without the interpreter's lock, in wide lanes, with a cache between runs.

They write to arrays that are passed to them and make none, so that references need not be counted,
and LLVM has half as much code to compile.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numba
from llvmlite import binding, ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from regard.loops.cache import config, keep

Decorator = Callable[[Callable[..., Any]], Any]
njit: Any = numba.njit

# A product and a sum may become one instruction; nothing else about rounding is given away.
PLAIN = frozenset({"contract"})
# Sums over lanes may also be taken in any order.
SUMS = frozenset({"contract", "reassoc", "nsz"})
DATA = 4  # the place of the data pointer among what numba passes for an array


@cache
def has(feature: str) -> bool:
    """Whether compiled code may use a feature of the processor, by LLVM's name for it.

    NUMBA_CPU_FEATURES and NUMBA_CPU_NAME=generic can exclude features that the processor has.
    """
    features = config.CPU_FEATURES
    if features is not None:
        return f"+{feature}" in features.split(",")
    return bool(binding.get_host_cpu_features().get(feature, False))


def _loop(flags: frozenset[str], **more: bool) -> Decorator:
    """Compile a function that holds no interpreter lock and makes no arrays."""
    more |= {"nogil": True, "no_cfunc_wrapper": True, "_nrt": False}
    decorator: Decorator = njit(error_model="numpy", fastmath=set(flags), **more)
    return decorator


# A part of a kernel, which Python cannot call; the same for a part that sums over lanes; and a part
# that is inlined into its callers, which shortens compilation.
inner = _loop(PLAIN, no_cpython_wrapper=True)
inner_sum = _loop(SUMS, no_cpython_wrapper=True)
written_out: Decorator = njit(inline="always", _nrt=False)


def compiled(function: Callable[..., Any]) -> Any:
    """Compile a kernel, and cache the machine code where the user may write."""
    return keep(_loop(PLAIN)(function))


def _advice(*attributes: str) -> Any:
    def typed(context: Any) -> Any:
        def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            for attribute in attributes:
                set.add(builder.function.attributes, attribute)
            for argument in builder.function.args:
                if argument.name.endswith(f".{DATA}") and isinstance(argument.type, ir.PointerType):
                    argument.add_attribute("noalias")
            return context.get_dummy_value()

        return types.none(), lower

    return intrinsic(typed)


WIDE = '"prefer-vector-width"="512"'

# Tell LLVM that the arrays passed to this function are distinct, and to use wide registers. Without
# the first it does not vectorise loops over several rows; without the second it stops at 256 bits
# on processors that have 512. `lanes_inlined` also saves the call.
lanes, lanes_inlined = _advice(WIDE), _advice(WIDE, "alwaysinline")


def _bitcast(source: Any, target: Any, lowered: Any) -> Any:
    def typed(context: Any, number: Any) -> Any:
        def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.bitcast(arguments[0], lowered)

        return target(source), lower

    return intrinsic(typed)


bits_of_single = _bitcast(types.float32, types.int32, ir.IntType(32))
single_of_bits = _bitcast(types.int32, types.float32, ir.FloatType())
bits_of_double = _bitcast(types.float64, types.int64, ir.IntType(64))
double_of_bits = _bitcast(types.int64, types.float64, ir.DoubleType())
