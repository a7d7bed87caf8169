"""Matrix products of few rows, with the weights packed once: y = x W^T.

A product library packs the weights at every call, which for some thirty rows costs more than the
product. Here they lie as they are read: panels of `COLUMNS` outputs, in each the weights of input
1, then those of input 2, ... A tile of rows and columns adds up in registers:

    sums[r, c] += x[r, k] W[c, k]        for k = 1, 2, ...
"""

from typing import Any, NamedTuple

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from torch import Tensor
from torch.nn import functional as F

from regard.loops.compiling import has, inner
from regard.loops.vectors import Vector, in_all_lanes, llvm_function, multiply_add

NUMBERS = Vector(types.float32)
# A tile's sums, one panel's weights and an input fit 32 registers of 512 bits, 16 of 256, or 32 of 128.
ROWS = 6
VECTORS = 4 if has("avx512f") else 1
COLUMNS = NUMBERS.count * VECTORS


def packed(weight: Tensor) -> Tensor:
    """A weight (outputs, inputs) as flat panels; the last one is filled up with zeros."""
    full = F.pad(weight, (0, 0, 0, -len(weight) % COLUMNS))
    return full.view(-1, COLUMNS, weight.shape[1]).transpose(1, 2).reshape(-1)


class _Tile(NamedTuple):
    """The places, in LLVM's values, that a tile reads and writes."""

    inputs: Any  # of the tile's first row; the next row lies `depth` further on
    depth: Any
    panel: Any
    sums: Any  # of the tile's first row; the next row lies `width` further on
    width: Any


@llvm_function
def sum_tile(
    context: Any,
    rows: Any,
    x: Any,
    row: Any,
    depth: Any,
    weights: Any,
    panel: Any,
    out: Any,
    corner: Any,
    width: Any,
) -> Any:
    """Write the sums of 1 to `ROWS` rows and one panel.

    Args:
        row, panel, corner: where the tile's rows begin in x, its weights, and its sums in out; arrays are flat.
        width: how far one row of out is from the next.
    """
    count = types.int64

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def place(array: int) -> Any:
            values = context.make_array(signature.args[array])(context, builder, arguments[array])
            return builder.gep(values.data, [arguments[array + 1]])

        tile = _Tile(place(1), arguments[3], place(4), place(6), arguments[8])
        done = builder.append_basic_block("done")
        choice = builder.switch(arguments[0], done)
        for rows in range(1, ROWS + 1):
            case = builder.append_basic_block(f"rows{rows}")
            choice.add_case(_index(rows), case)
            builder.position_at_end(case)
            _sum_rows(builder, rows, tile)
            builder.branch(done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return types.none(count, x, count, count, weights, count, out, count, count), lower


def _sum_rows(builder: Any, rows: int, tile: _Tile) -> None:
    """A tile of so many rows: a loop over the inputs, then stores."""
    kind = NUMBERS.lowered

    def vector(place: Any, number: int) -> Any:
        offset = builder.gep(place, [_index(number * NUMBERS.count)])
        return builder.bitcast(offset, kind.as_pointer())

    inputs = [builder.gep(tile.inputs, [builder.mul(tile.depth, _index(r))]) for r in range(rows)]
    entry, loop = builder.block, builder.append_basic_block("inputs")
    done = builder.append_basic_block("sums")
    builder.branch(loop)
    # For each input k: the panel's weights of k, and each row's x[k] in every lane.
    builder.position_at_end(loop)
    k = builder.phi(ir.IntType(64))
    sums = [[builder.phi(kind) for _ in range(VECTORS)] for _ in range(rows)]
    panel = builder.gep(tile.panel, [builder.mul(k, _index(COLUMNS))])
    weights = [builder.load(vector(panel, c), align=4) for c in range(VECTORS)]
    numbers = [
        in_all_lanes(builder, NUMBERS, builder.load(builder.gep(row, [k]))) for row in inputs
    ]
    added = [
        [multiply_add(builder, NUMBERS, x, weights[c], row[c]) for c in range(VECTORS)]
        for x, row in zip(numbers, sums, strict=True)
    ]
    # The sums begin with 0 and come back to the loop with one product more.
    following = builder.add(k, _index(1))
    k.add_incoming(_index(0), entry)
    k.add_incoming(following, loop)
    for row, larger in zip(sums, added, strict=True):
        for total, after_product in zip(row, larger, strict=True):
            total.add_incoming(ir.Constant(kind, [0] * NUMBERS.count), entry)
            total.add_incoming(after_product, loop)
    builder.cbranch(builder.icmp_signed("<", following, tile.depth), loop, done)
    builder.position_at_end(done)
    for r, vectors in enumerate(added):
        row = builder.gep(tile.sums, [builder.mul(tile.width, _index(r))])
        for c in range(VECTORS):
            builder.store(vectors[c], vector(row, c), align=4)


def _index(number: int) -> Any:
    return ir.Constant(ir.IntType(64), number)


@inner
def multiply(
    x: Any, rows: Any, depth: Any, weights: Any, at: Any, width: Any, tile: Any, out: Any
) -> None:
    """out = x W^T, of rows side by side; W's panels begin at `at`. `tile` is a buffer for a tile."""
    for panel in range((width + COLUMNS - 1) // COLUMNS):
        column, place = panel * COLUMNS, at + panel * depth * COLUMNS
        for row in range(0, rows, ROWS):
            count, inputs = min(ROWS, rows - row), row * depth
            if column + COLUMNS <= width:
                corner = row * width + column
                sum_tile(count, x, inputs, depth, weights, place, out, corner, width)
            else:  # the last panel has columns that out has not
                sum_tile(count, x, inputs, depth, weights, place, tile, 0, COLUMNS)
                for i in range(count):
                    for c in range(width - column):
                        out[(row + i) * width + column + c] = tile[i * COLUMNS + c]
