"""One product for both kinds of weights: of float32, or rounded to 8 bits where the workspace has buffers for that."""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import overload

from regard.translation.engines.compiled import float_product, int8_product


def product(
    x: Any, rows: Any, depth: Any, weights: Any, at: Any, width: Any, workspace: Any, out: Any
) -> None:
    """out = x W^T, of rows side by side."""  # fmt: skip
    raise NotImplementedError("only compiled loops call this")


@overload(product, jit_options={"nogil": True, "error_model": "numpy", "fastmath": {"contract"}})
def _product(
    x: Any, rows: Any, depth: Any, weights: Any, at: Any, width: Any, workspace: Any, out: Any
) -> Any:
    if isinstance(workspace.types[workspace.fields.index("rounded")], types.NoneType):

        def whole(
            x: Any,
            rows: Any,
            depth: Any,
            weights: Any,
            at: Any,
            width: Any,
            workspace: Any,
            out: Any,
        ) -> None:
            float_product.product(x, rows, depth, weights, at, width, workspace.spare, out)

        return whole

    def few_bits(
        x: Any, rows: Any, depth: Any, weights: Any, at: Any, width: Any, workspace: Any, out: Any
    ) -> None:
        numbers, factors = workspace.rounded, workspace.factors
        int8_product.product(
            x, rows, depth, weights, at, width, numbers, factors, workspace.spare, out
        )

    return few_bits
