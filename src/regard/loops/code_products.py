"""Sums over codes of 8 bits, by products of whole numbers: a register holds twice as many of 16 bits as of float32.

LLVM unrolls so short a loop before it looks for vectors, so the vectors are written here.
`benchmarks/quality/remembering.py` measures the translator that reads the codes.
"""

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core.cgutils import get_or_insert_function

from regard.loops.vectors import llvm_function

LANES = 16  # products that one instruction of AVX2 adds in pairs
_NARROW, _WIDE = (ir.VectorType(ir.IntType(bits), LANES) for bits in (16, 32))


def weighted_difference(count: int, weight: int) -> Any:
    """The function (codes, row, query) -> sum_i c_i (weight c_i - q_i) over the `count` codes c of a row.

    Args:
        count: a multiple of `LANES`.
        weight: weight c_i - q_i must fit into 16 bits.
    """

    def typed(context: Any, codes: Any, row: Any, query: Any) -> Any:
        def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            begin = builder.mul(arguments[1], ir.Constant(arguments[1].type, count))
            arrays = (
                context.make_array(kind)(context, builder, value=value).data
                for kind, value in zip(signature.args[::2], arguments[::2], strict=True)
            )
            code_at, query_at = next(arrays), next(arrays)
            weights = ir.Constant(_NARROW, [weight] * LANES)
            total = ir.Constant(_WIDE, [0] * LANES)
            for start in range(0, count, LANES):
                step = ir.Constant(begin.type, start)
                code = builder.sext(_load(builder, code_at, builder.add(begin, step), 8), _NARROW)
                difference = builder.sub(
                    builder.mul(code, weights), _load(builder, query_at, step, 16)
                )
                product = builder.mul(builder.sext(code, _WIDE), builder.sext(difference, _WIDE))
                total = builder.add(total, product)
            declared = ir.FunctionType(_WIDE.element, [_WIDE])
            name = f"llvm.vector.reduce.add.v{LANES}i32"
            return builder.call(get_or_insert_function(builder.module, declared, name), [total])

        return types.int32(codes, row, query), lower

    return llvm_function(typed)


def _load(builder: Any, data: Any, at: Any, bits: int) -> Any:
    kind = ir.VectorType(ir.IntType(bits), LANES).as_pointer()
    return builder.load(builder.bitcast(builder.gep(data, [at]), kind), align=bits // 8)
