"""Products of a vector with the rows of a matrix, whose halves are widened in registers: an array of uint16 has the
bits of float16, one of int16 those of bfloat16."""

from typing import Any

import numpy as np
import torch
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core.cgutils import get_item_pointer, get_or_insert_function
from torch import Tensor

from regard.attention.scores.score import SHORTEST
from regard.loops.compiling import has, inner, inner_sum, lanes
from regard.loops.vectors import llvm_function

LINE = 64  # bytes that a cache takes from memory together
KINDS = {
    torch.float32: np.float32,
    torch.bfloat16: np.int16,
}  # precisions that loops read, as these numbers
if has("f16c") or has("neon"):  # one instruction widens eight; elsewhere torch does
    KINDS[torch.float16] = np.uint16


def rows_of(vectors: Tensor) -> np.ndarray:
    """Vectors as the loops read them."""
    kind = KINDS.get(vectors.dtype, np.float32)
    if kind is np.float32:
        return vectors.float().contiguous().numpy()
    return vectors.contiguous().view(torch.int16).numpy().view(kind)


def widened(rows: np.ndarray) -> Tensor:
    """The vectors of `rows_of`, in float32."""
    if rows.dtype == np.float32:
        return torch.from_numpy(rows)
    half = torch.bfloat16 if rows.dtype == np.int16 else torch.float16
    return torch.from_numpy(rows.view(np.int16)).view(half).float()


@llvm_function
def number(context: Any, x: Any) -> Any:
    """A number of a matrix in float32."""

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (bits,), single = arguments, ir.FloatType()
        if x == types.float32:
            return bits
        if x == types.uint16:
            return builder.fpext(builder.bitcast(bits, ir.HalfType()), single)
        word = ir.IntType(32)
        return builder.bitcast(builder.shl(builder.zext(bits, word), word(16)), single)

    return types.float32(x), lower


@inner_sum
def dot(vector: Any, rows: Any, row: Any) -> Any:
    lanes()
    total = np.float32(0)
    for column in range(np.uint64(len(vector))):
        total += number(vector[column]) * number(rows[row, column])
    return total


@llvm_function
def _fetch_line(context: Any, rows: Any, row: Any, column: Any) -> Any:
    """Begin to bring a number and its neighbours from memory to the cache."""

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = signature.args[0]
        array, place = context.make_array(kind)(context, builder, value=arguments[0]), arguments[1:]
        pointer = get_item_pointer(context, builder, kind, array, place, wraparound=False)
        number, byte = ir.IntType(32), ir.IntType(8).as_pointer()
        declared = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        fetch = get_or_insert_function(builder.module, declared, "llvm.prefetch.p0i8")
        options = number(0), number(3), number(1)  # to read, into the nearest cache, as data
        builder.call(fetch, [builder.bitcast(pointer, byte), *options])
        return context.get_dummy_value()

    return types.none(rows, row, column), lower


@inner
def fetch(rows: Any, row: Any) -> None:
    """Begin to bring a row from memory, while others are read; processors ignore one beyond the last."""
    column: Any = np.uint64(0)
    while column < np.uint64(rows.shape[1]):
        _fetch_line(rows, row, column)
        column += np.uint64(LINE // rows.itemsize)


@inner
def divided(product: Any, rows: Any, row: Any) -> Any:
    """A product over the length of its row; 0 for a row that is too short."""
    length = np.sqrt(dot(rows[row], rows, row))
    return np.float32(0) if length < SHORTEST else product / length
