"""A register's worth of numbers as a type of numba: of float32 16 with AVX-512 and 8 without, of float64 half as many.

LLVM's vectoriser decides by itself how loops become vectors, writes remainder loops that are never
entered here, and cannot keep a tile of sums in registers. With vectors as values the loops say it:

    x = load(row, at);  y = x * splat(row, 2.0);  store(row, at, x + y);  total(y)

LLVM splits them on processors with narrower registers. A product and a sum may be contracted.
Without AVX-512 there are 16 registers of 256 bits: vectors of 512 would be two of them, and sums would not fit.
"""

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core.cgutils import get_or_insert_function
from numba.core.datamodel import models
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, register_model

from regard.loops.compiling import has, inner, lanes_inlined

BITS = 512 if has("avx512f") else 256
CONTRACT = ("contract",)


class Vector(types.Type):
    """The numbers of a type that a register holds."""

    def __init__(self, number: Any) -> None:
        self.number, self.count = number, BITS // number.bitwidth
        super().__init__(f"vector({number})")

    @property
    def lowered(self) -> Any:
        kind = ir.FloatType() if self.number == types.float32 else ir.DoubleType()
        return ir.VectorType(kind, self.count)


llvm_function: Callable[[Callable[..., Any]], Any] = (
    intrinsic  # numba passes the first argument, which a type checker cannot know
)


@register_model(Vector)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Vector) -> None:
        super().__init__(manager, kind, kind.lowered)  # type: ignore[no-untyped-call]


def _arithmetic(symbol: Any, instruction: str) -> None:
    @infer_global(symbol)
    class _Typed(AbstractTemplate):
        def generic(self, arguments: Any, _: Any) -> Any:
            if len(arguments) == 2 and all(isinstance(kind, Vector) for kind in arguments):
                return signature(arguments[0], *arguments)
            return None

    @lower_builtin(symbol, Vector, Vector)  # type: ignore[untyped-decorator]
    def _lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return getattr(builder, instruction)(*arguments, flags=CONTRACT)


_arithmetic(operator.add, "fadd")
_arithmetic(operator.sub, "fsub")
_arithmetic(operator.mul, "fmul")
_arithmetic(operator.truediv, "fdiv")


def _place(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> Any:
    data = context.make_array(kind)(context, builder, value=array).data
    return builder.bitcast(builder.gep(data, [at]), Vector(kind.dtype).lowered.as_pointer())


@llvm_function
def load(context: Any, array: Any, at: Any) -> Any:
    """The numbers of an array from `at` on."""

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = _place(context, builder, signature.args[0], *arguments)
        return builder.load(place, align=array.dtype.bitwidth // 8)

    return Vector(array.dtype)(array, at), lower


@llvm_function
def store(context: Any, array: Any, at: Any, vector: Any) -> Any:
    """Write a vector from `at` on."""

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = _place(context, builder, signature.args[0], *arguments[:2])
        builder.store(arguments[2], place, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.none(array, at, vector), lower


def in_all_lanes(builder: Any, kind: Vector, number: Any) -> Any:
    empty, index = ir.Constant(kind.lowered, ir.Undefined), ir.IntType(32)
    lowest = builder.insert_element(empty, number, ir.Constant(index, 0))
    lanes = ir.Constant(ir.VectorType(index, kind.count), [0] * kind.count)
    return builder.shuffle_vector(lowest, empty, lanes)


def multiply_add(builder: Any, kind: Vector, x: Any, y: Any, sum_: Any) -> Any:
    """x * y + sum, in one instruction where there is one."""
    name = f"llvm.fmuladd.v{kind.count}f{kind.number.bitwidth}"
    declared = ir.FunctionType(kind.lowered, [kind.lowered] * 3)
    return builder.call(get_or_insert_function(builder.module, declared, name), [x, y, sum_])


@llvm_function
def splat(context: Any, array: Any, x: Any) -> Any:
    """A number in every lane, in the precision of an array."""
    kind = Vector(array.dtype)

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number = context.cast(builder, arguments[1], signature.args[1], array.dtype)
        return in_all_lanes(builder, kind, number)

    return kind(array, x), lower


@llvm_function
def repeat(context: Any, array: Any, at: Any) -> Any:
    """The number of an array at `at`, in every lane."""

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, value=arguments[0]).data
        number = builder.load(builder.gep(data, [arguments[1]]))
        return in_all_lanes(builder, Vector(array.dtype), number)

    return Vector(array.dtype)(array, at), lower


@llvm_function
def width_of(context: Any, array: Any) -> Any:
    """How many numbers of an array a vector holds."""

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return ir.Constant(ir.IntType(64), Vector(array.dtype).count)

    return types.int64(array), lower


def _over_lanes(name: str, combine: Callable[..., Any]) -> Any:
    """The lanes reduced to one number: halves, quarters, ... always in this order."""

    def typed(context: Any, vector: Any) -> Any:
        def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            (lanes,), count, index = arguments, vector.count, ir.IntType(32)
            while count > 1:
                count //= 2
                halves = [
                    builder.shuffle_vector(
                        lanes,
                        ir.Constant(lanes.type, ir.Undefined),
                        ir.Constant(ir.VectorType(index, count), list(range(k, k + count))),
                    )
                    for k in (0, count)
                ]
                lanes = combine(builder, *halves)
            return builder.extract_element(lanes, ir.Constant(index, 0))

        return vector.number(vector), lower

    typed.__name__ = name
    return llvm_function(typed)


def _larger(builder: Any, x: Any, y: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", x, y), x, y)


total = _over_lanes("total", lambda builder, x, y: builder.fadd(x, y))
maximum = _over_lanes("maximum", _larger)


@llvm_function
def larger(context: Any, x: Any, y: Any) -> Any:
    """Lane by lane x where x > y, or else y."""

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _larger(builder, *arguments)

    return x(x, y), lower


@llvm_function
def fused(context: Any, x: Any, y: Any, sum_: Any) -> Any:
    """x * y + sum, in one instruction where there is one, even if the product recurs."""

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return multiply_add(builder, x, *arguments)

    return x(x, y, sum_), lower


@inner
def load_four(row: Any, at: Any, apart: Any) -> Any:
    """Four vectors of an array, so far apart."""
    lanes_inlined()
    third = at + 2 * apart
    return load(row, at), load(row, at + apart), load(row, third), load(row, third + apart)


@inner
def store_four(row: Any, at: Any, apart: Any, x: Any) -> None:
    """Write four vectors, so far apart."""
    lanes_inlined()
    third = at + 2 * apart
    store(row, at, x[0])
    store(row, at + apart, x[1])
    store(row, third, x[2])
    store(row, third + apart, x[3])
