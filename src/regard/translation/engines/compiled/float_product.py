"""Matrix products of few rows, with the weights packed once: y = x W^T.

A product library packs the weights at every call, which for some thirty rows costs more than the
product. Here they lie as they are read: panels of `COLUMNS` outputs, in each the weights of input
1, then those of input 2, ... A tile of rows and columns adds up in registers:

    sums[r, c] += x[r, k] W[c, k]        for k = 1, 2, ...
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core.cgutils import get_or_insert_function
from numba.extending import intrinsic
from torch import Tensor

from regard.loops.compiling import has, inner

LANES = 16
# A tile's sums, one panel's weights and an input fit 32 registers of 512 bits, 16 of 256, or 32 of 128.
WIDE = has("avx512f")
ROWS = 6
VECTORS = 4 if WIDE else 1
COLUMNS = LANES * VECTORS

_NUMBER = ir.FloatType()
_VECTOR = ir.VectorType(_NUMBER, LANES)
_INDEX = ir.IntType(64)


def packed(weight: Tensor) -> Tensor:
    """A weight (outputs, inputs) as flat panels; the last one is filled up with zeros."""
    outputs, inputs = weight.shape
    panels = -(-outputs // COLUMNS)
    whole = weight.new_zeros(panels * COLUMNS, inputs)
    whole[:outputs] = weight
    return whole.view(panels, COLUMNS, inputs).transpose(1, 2).reshape(-1)


def _tile(rows: int) -> Callable[..., None]:
    """A tile of so many rows, as an intrinsic; arrays are flat, `to` and `at` places within."""

    def typed(
        context: Any,
        weights: Any,
        at: Any,
        x: Any,
        of: Any,
        depth: Any,
        out: Any,
        to: Any,
        step: Any,
    ) -> Any:
        whole = types.int64
        kinds = types.none(weights, whole, x, whole, whole, out, whole, whole)
        return kinds, _lower(rows)

    return intrinsic(typed)


def _lower(rows: int) -> Any:
    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def data(i: int) -> Any:
            return context.make_array(signature.args[i])(context, builder, arguments[i]).data

        def vector(place: Any) -> Any:
            return builder.bitcast(place, _VECTOR.as_pointer())

        _, at, _, of, depth, _, to, step = arguments
        weights, out = builder.gep(data(0), [at]), builder.gep(data(5), [to])
        inputs = [
            builder.gep(data(2), [builder.add(of, builder.mul(depth, _whole(r)))])
            for r in range(rows)
        ]
        fma = get_or_insert_function(
            builder.module, ir.FunctionType(_VECTOR, [_VECTOR] * 3), f"llvm.fmuladd.v{LANES}f32"
        )
        before, loop = builder.block, builder.append_basic_block("inputs")
        after = builder.append_basic_block("sums")
        builder.branch(loop)
        builder.position_at_end(loop)
        k = builder.phi(_INDEX)
        k.add_incoming(_whole(0), before)
        sums = [[builder.phi(_VECTOR) for _ in range(VECTORS)] for _ in range(rows)]
        start = builder.mul(k, _whole(COLUMNS))
        panel = [
            builder.load(
                vector(builder.gep(weights, [builder.add(start, _whole(c * LANES))])), align=4
            )
            for c in range(VECTORS)
        ]
        added = []
        for r in range(rows):
            number = builder.load(builder.gep(inputs[r], [k]))
            everywhere = _splat(builder, number)
            added.append(
                [builder.call(fma, [everywhere, panel[c], sums[r][c]]) for c in range(VECTORS)]
            )
        following = builder.add(k, _whole(1))
        k.add_incoming(following, loop)
        for r in range(rows):
            for c in range(VECTORS):
                sums[r][c].add_incoming(ir.Constant(_VECTOR, [0.0] * LANES), before)
                sums[r][c].add_incoming(added[r][c], loop)
        builder.cbranch(builder.icmp_signed("<", following, depth), loop, after)
        builder.position_at_end(after)
        for r in range(rows):
            row = builder.gep(out, [builder.mul(step, _whole(r))])
            for c in range(VECTORS):
                builder.store(added[r][c], vector(builder.gep(row, [_whole(c * LANES)])), align=4)
        return context.get_dummy_value()

    return lower


def _whole(number: int) -> Any:
    return ir.Constant(_INDEX, number)


def _splat(builder: Any, number: Any) -> Any:
    nothing, index = ir.Constant(_VECTOR, ir.Undefined), ir.IntType(32)
    one = builder.insert_element(nothing, number, ir.Constant(index, 0))
    lanes = ir.Constant(ir.VectorType(index, LANES), [0] * LANES)
    return builder.shuffle_vector(one, nothing, lanes)


_one, _two, _three, _four, _five, _six = (_tile(rows) for rows in range(1, ROWS + 1))


@inner
def _few(
    n: Any, weights: Any, at: Any, x: Any, of: Any, depth: Any, out: Any, to: Any, step: Any
) -> None:
    if n == 6:
        _six(weights, at, x, of, depth, out, to, step)
    elif n == 5:
        _five(weights, at, x, of, depth, out, to, step)
    elif n == 4:
        _four(weights, at, x, of, depth, out, to, step)
    elif n == 3:
        _three(weights, at, x, of, depth, out, to, step)
    elif n == 2:
        _two(weights, at, x, of, depth, out, to, step)
    else:
        _one(weights, at, x, of, depth, out, to, step)


@inner
def product(
    x: Any, rows: Any, depth: Any, weights: Any, at: Any, width: Any, spare: Any, out: Any
) -> None:
    """out = x W^T, of rows side by side; `spare` has room for a tile."""
    for panel in range((width + COLUMNS - 1) // COLUMNS):
        place, first = at + panel * depth * COLUMNS, panel * COLUMNS
        whole = first + COLUMNS <= width
        for r in range(0, rows, ROWS):
            n = min(ROWS, rows - r)
            if whole:
                _few(n, weights, place, x, r * depth, depth, out, r * width + first, width)
            else:
                _few(n, weights, place, x, r * depth, depth, spare, 0, COLUMNS)
                for i in range(n):
                    for c in range(width - first):
                        out[(r + i) * width + first + c] = spare[i * COLUMNS + c]
