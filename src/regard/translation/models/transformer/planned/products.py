"""One product for both kinds of weights: of float32, or rounded to 8 bits where the desk has room for that."""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import overload

from regard.translation.models.transformer.planned import rounded, tiles


def product(
    x: Any, rows: Any, depth: Any, weights: Any, at: Any, width: Any, desk: Any, out: Any
) -> None:
    """out = x W^T, of rows side by side."""  # fmt: skip
    raise NotImplementedError("only compiled loops call this")


@overload(product, jit_options={"nogil": True, "error_model": "numpy", "fastmath": {"contract"}})
def _product(
    x: Any, rows: Any, depth: Any, weights: Any, at: Any, width: Any, desk: Any, out: Any
) -> Any:
    if isinstance(desk.types[desk.fields.index("rounded")], types.NoneType):

        def whole(
            x: Any, rows: Any, depth: Any, weights: Any, at: Any, width: Any, desk: Any, out: Any
        ) -> None:
            tiles.product(x, rows, depth, weights, at, width, desk.spare, out)

        return whole

    def few_bits(
        x: Any, rows: Any, depth: Any, weights: Any, at: Any, width: Any, desk: Any, out: Any
    ) -> None:
        numbers, factors = desk.rounded, desk.factors
        rounded.product(x, rows, depth, weights, at, width, numbers, factors, desk.spare, out)

    return few_bits
