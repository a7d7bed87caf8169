"""Matrix products of few rows, with the weights packed once: y = x W^T.

A product library packs the weights at every call, which for some thirty rows costs more than the
product. Here they lie as they are read: panels of `COLUMNS` outputs, in each the weights of input
1, then those of input 2, ... A tile of rows and columns adds up in registers:

    sums[r, c] += x[r, k] W[c, k]        for k = 1, 2, ...

Numbers are float32, or rounded to 8 bits: a quarter of the memory, and four products a lane at once.
`Translator.translate` is then 2.02 times as fast for 400 sentences at once, and 1.73 times for single sentences
(benchmarks/engines.py, one thread of an AMD EPYC with AVX-512).

    y[r, c] = f[r] g[c] (sum_k X[r, k] W[c, k] - 128 sum_k W[c, k])
    X = round(x / f) + 128,   W = round(w / g),   f and g the largest |x| of a row, |w| of an output, by 127

Sums are of whole numbers and exact; only X and W are rounded. Where the processor has VNNI, one
instruction multiplies 64 bytes without sign by 64 with, and adds each four of them to a lane; where it has
AVX2, bytes become numbers of 16 bits, of which one instruction multiplies 16 by 16 and adds each two; elsewhere
the same is spelt out. Panels have four inputs side by side; behind them lie g and 128 times the sums of W.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core.cgutils import get_or_insert_function
from numba.extending import intrinsic
from torch import Tensor
from torch.nn import functional as F

from regard.loops.compiling import bits_of_single, has, inner, lanes, single_of_bits

LANES = 16
# A tile's sums, one panel's weights and an input fit 32 registers of 512 bits, 16 of 256, or 32 of 128.
ROWS = 6
VECTORS = 4 if has("avx512f") else 1
COLUMNS = LANES * VECTORS
FOUR = 4  # bytes in a lane
VNNI = has("avx512vnni") and has("avx512f")
PAIRS = has("avx2")
_LARGEST, _MIDDLE = 127, 128
_UNSIGNED, _INFINITE = 0x7FFFFFFF, 0x7F800000  # of float32's bits

_BYTE, _HALF, _WHOLE, _INDEX = (ir.IntType(bits) for bits in (8, 16, 32, 64))
_NUMBER = ir.FloatType()
_WHOLES, _NUMBERS = ir.VectorType(_WHOLE, LANES), ir.VectorType(_NUMBER, LANES)

# From the builder, a tile's sums, an input in every lane, and weights, to the sums with their products.
AddProducts = Callable[[Any, Any, Any, Any], Any]


def packed(weight: Tensor) -> Tensor:
    """A weight (outputs, inputs) as flat panels; the last one is filled up with zeros."""
    whole = F.pad(weight, (0, 0, 0, -len(weight) % COLUMNS))
    return whole.view(-1, COLUMNS, weight.shape[1]).transpose(1, 2).reshape(-1)


def packed_rounded(weight: Tensor) -> Tensor:
    """The same as panels of bytes, with their factors and corrections behind them; all as float32's bits."""
    outputs, inputs = weight.shape
    factors = F.pad(weight.abs().amax(1) / _LARGEST, (0, -outputs % COLUMNS))
    whole = F.pad(weight, (0, -inputs % FOUR, 0, -outputs % COLUMNS))
    rounded = torch.where(factors[:, None] > 0, whole / factors[:, None], 0.0).round().char()
    panelled = rounded.view(-1, COLUMNS, rounded.shape[1] // FOUR, FOUR).transpose(1, 2).reshape(-1)
    corrections = _MIDDLE * rounded.sum(1, dtype=torch.int32)
    bits = [panelled.view(torch.int32), factors.view(torch.int32), corrections]
    return torch.cat(bits).view(torch.float32)


def _index(number: int) -> Any:
    return ir.Constant(_INDEX, number)


def _tile(lane: Any, add_products: AddProducts) -> Any:
    """Tiles of 1 to `ROWS` rows, as an intrinsic. Arrays are flat; x is read from lane `of` on."""

    def typed(
        context: Any, rows: Any, weights: Any, x: Any, of: Any, depth: Any, out: Any, step: Any
    ) -> Any:
        n = types.int64
        return types.none(n, weights, x, n, n, out, n), lower

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def lanes_of(array: int) -> Any:
            given = context.make_array(signature.args[array])(context, builder, arguments[array])
            return builder.bitcast(given.data, lane.as_pointer())

        weights, x, out = lanes_of(1), builder.gep(lanes_of(2), [arguments[3]]), lanes_of(5)
        after = builder.append_basic_block("after")
        choice = builder.switch(arguments[0], after)
        for rows in range(1, ROWS + 1):
            case = builder.append_basic_block(f"rows{rows}")
            choice.add_case(_index(rows), case)
            builder.position_at_end(case)
            given = weights, x, arguments[4], out, arguments[6]
            _sum_rows(builder, rows, lane, add_products, *given)
            builder.branch(after)
        builder.position_at_end(after)
        return context.get_dummy_value()

    return intrinsic(typed)


def _sum_rows(
    builder: Any,
    rows: int,
    lane: Any,
    add_products: AddProducts,
    weights: Any,
    x: Any,
    depth: Any,
    out: Any,
    step: Any,
) -> None:
    """A tile of so many rows: a loop over the inputs, then stores."""
    kind = ir.VectorType(lane, LANES)

    def vector(first: Any, lanes: int) -> Any:
        return builder.bitcast(builder.gep(first, [_index(lanes)]), kind.as_pointer())

    inputs = [builder.gep(x, [builder.mul(depth, _index(r))]) for r in range(rows)]
    before, loop = builder.block, builder.append_basic_block("inputs")
    after = builder.append_basic_block("sums")
    builder.branch(loop)
    builder.position_at_end(loop)
    k = builder.phi(_INDEX)
    k.add_incoming(_index(0), before)
    sums = [[builder.phi(kind) for _ in range(VECTORS)] for _ in range(rows)]
    panel = builder.gep(weights, [builder.mul(k, _index(COLUMNS))])
    columns = [builder.load(vector(panel, c * LANES), align=4) for c in range(VECTORS)]
    added = []
    for r in range(rows):
        number = _splat(builder, builder.load(builder.gep(inputs[r], [k])), kind)
        added.append(
            [add_products(builder, sums[r][c], number, columns[c]) for c in range(VECTORS)]
        )
    following = builder.add(k, _index(1))
    k.add_incoming(following, loop)
    for r in range(rows):
        for c in range(VECTORS):
            sums[r][c].add_incoming(ir.Constant(kind, [0] * LANES), before)
            sums[r][c].add_incoming(added[r][c], loop)
    builder.cbranch(builder.icmp_signed("<", following, depth), loop, after)
    builder.position_at_end(after)
    for r in range(rows):
        row = builder.gep(out, [builder.mul(step, _index(r))])
        for c in range(VECTORS):
            builder.store(added[r][c], vector(row, c * LANES), align=4)


def _splat(builder: Any, number: Any, kind: Any) -> Any:
    nothing = ir.Constant(kind, ir.Undefined)
    one = builder.insert_element(nothing, number, ir.Constant(_WHOLE, 0))
    return builder.shuffle_vector(one, nothing, ir.Constant(_WHOLES, [0] * LANES))


def _call(builder: Any, name: str, result: Any, given: list[Any]) -> Any:
    """Call an instruction of LLVM or of the processor, by LLVM's name for it."""
    kind = ir.FunctionType(result, [each.type for each in given])
    return builder.call(get_or_insert_function(builder.module, kind, name), given)


def _add_numbers(builder: Any, sums: Any, x: Any, weights: Any) -> Any:
    return _call(builder, f"llvm.fmuladd.v{LANES}f32", _NUMBERS, [x, weights, sums])


def _add_bytes(builder: Any, sums: Any, x: Any, weights: Any) -> Any:
    """Each lane's sum and its four products of bytes more."""
    if VNNI:
        name = f"llvm.x86.avx512.vpdpbusd.{32 * LANES}"
        return _call(builder, name, _WHOLES, [sums, x, weights])
    if PAIRS:
        return _add_pairs(builder, sums, x, weights)
    kind, wide = ir.VectorType(_BYTE, FOUR * LANES), ir.VectorType(_WHOLE, FOUR * LANES)
    products = builder.mul(
        builder.zext(builder.bitcast(x, kind), wide),
        builder.sext(builder.bitcast(weights, kind), wide),
    )
    for i in range(FOUR):
        chosen = ir.Constant(_WHOLES, [FOUR * lane + i for lane in range(LANES)])
        sums = builder.add(sums, builder.shuffle_vector(products, products, chosen))
    return sums


def _add_pairs(builder: Any, sums: Any, x: Any, weights: Any) -> Any:
    """The same where one instruction adds two products of 16 bits: those of the even bytes, then of the odd."""
    kind, sum_of_part = ir.VectorType(_HALF, 2 * LANES), ir.VectorType(_WHOLE, LANES // 2)
    eight = ir.Constant(kind, [8] * 2 * LANES)
    x, weights = builder.bitcast(x, kind), builder.bitcast(weights, kind)
    even = builder.and_(x, ir.Constant(kind, [255] * 2 * LANES))
    signed = builder.ashr(builder.shl(weights, eight), eight)
    halves = [ir.Constant(_WHOLES, list(range(first, first + LANES))) for first in (0, LANES)]
    for pair in (even, signed), (builder.lshr(x, eight), builder.ashr(weights, eight)):
        parts = [
            _call(
                builder,
                "llvm.x86.avx2.pmadd.wd",
                sum_of_part,
                [builder.shuffle_vector(each, each, half) for each in pair],
            )
            for half in halves
        ]
        sums = builder.add(sums, builder.shuffle_vector(*parts, halves[0]))
    return sums


def _product_of(sum_tile: Any) -> Any:
    @inner
    def in_tiles(
        x: Any, rows: Any, depth: Any, weights: Any, at: Any, width: Any, tile: Any, out: Any
    ) -> None:
        for panel in range((width + COLUMNS - 1) // COLUMNS):
            first, own = panel * COLUMNS, weights[at + panel * depth * COLUMNS :]
            for r in range(0, rows, ROWS):
                n = min(ROWS, rows - r)
                if first + COLUMNS <= width:
                    sum_tile(n, own, x, r * depth, depth, out[r * width + first :], width)
                    continue
                sum_tile(n, own, x, r * depth, depth, tile, COLUMNS)
                for i in range(n):
                    for c in range(width - first):
                        out[(r + i) * width + first + c] = tile[i * COLUMNS + c]

    return in_tiles


_of_numbers = _product_of(_tile(_NUMBER, _add_numbers))
_of_bytes = _product_of(_tile(_WHOLE, _add_bytes))


@inner
def _most(row: Any) -> Any:
    """The bits of the largest |x|, which are in the numbers' order; those of NaN and infinity are above."""
    lanes()
    most = np.int32(0)
    for i in range(np.uint64(row.size)):
        bits = np.int32(bits_of_single(row[i]) & np.int32(_UNSIGNED))
        most = bits if bits > most else most
    return most


@inner
def _round(row: Any, by: Any, out: Any) -> None:
    lanes()
    for i in range(np.uint64(row.size)):
        out[i] = np.uint8(np.int32(row[i] * by + np.float32(_MIDDLE + 0.5)))


@inner
def _round_rows(x: Any, rows: Any, depth: Any, groups: Any, rounded: Any, factors: Any) -> None:
    for r in range(rows):
        row, out = x[r * depth : r * depth + depth], rounded[r * groups * FOUR :]
        bits = _most(row)
        most = single_of_bits(bits)
        by = np.float32(_LARGEST) / most if most > 0 else np.float32(0)
        _round(row, by, out[:depth])
        for i in range(depth, groups * FOUR):
            out[i] = 0
        factors[r] = (
            most / np.float32(_LARGEST) if bits < np.int32(_INFINITE) else np.float32(np.nan)
        )


@inner
def _scale(row: Any, factor: Any, factors: Any, corrections: Any) -> None:
    """Convert sums of whole numbers, in the bits of a row, to the real numbers they stand for."""
    lanes()
    for i in range(np.uint64(row.size)):
        total = np.int32(bits_of_single(row[i]) - bits_of_single(corrections[i]))
        row[i] = np.float32(total) * (factor * factors[i])


@inner
def multiply(
    x: Any,
    rows: Any,
    depth: Any,
    weights: Any,
    at: Any,
    width: Any,
    rounded: Any,
    factors: Any,
    tile: Any,
    out: Any,
) -> None:
    """out = x W^T, of rows side by side.

    Args:
        rounded, factors: buffers for rounded rows and their factors; None for weights of float32.
        tile: a buffer for a tile.
    """
    if rounded is None:  # numba compiles one of the two
        _of_numbers(x, rows, depth, weights, at, width, tile, out)
    else:
        groups, panels = (depth + FOUR - 1) // FOUR, (width + COLUMNS - 1) // COLUMNS
        _round_rows(x, rows, depth, groups, rounded, factors)
        _of_bytes(rounded, rows, groups, weights, at, width, tile, out)
        by = at + panels * groups * COLUMNS
        less = by + panels * COLUMNS
        for r in range(rows):
            row = out[r * width : r * width + width]
            _scale(row, factors[r], weights[by : by + width], weights[less : less + width])


@inner
def product(
    x: Any, rows: Any, depth: Any, weights: Any, at: Any, width: Any, workspace: Any, out: Any
) -> None:
    """`multiply` with the buffers of a `forward_loops.Workspace`."""
    rounded, factors, tile = workspace.rounded, workspace.factors, workspace.tile
    multiply(x, rows, depth, weights, at, width, rounded, factors, tile, out)
