"""Two matrix products and a softmax, for short rows on a processor.

On a CPU, torch's fused attention is for long rows: with a few dozen queries and keys, in half
precision above all, its overhead for each block costs more than the matrix it saves.
"""

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from regard.attention.dropout import drop
from regard.attention.kernels.dots import additive_mask, dots_objection, factors, read_dots
from regard.attention.kernels.request import Request
from regard.attention.kernels.tiled import read_tiles
from regard.attention.products import HALVES, product_dtype


class Matmul:
    name = "matmul"

    def objection(self, request: Request, value: Tensor) -> str | None:
        return dots_objection(request, value)

    def attend(self, request: Request, value: Tensor) -> Tensor:
        dtype = product_dtype(value)
        if dtype not in HALVES:
            return _reading(request, value)
        # Scores rounded to a half precision would be wrong by more than their weights allow.
        wide = replace(request, query=request.query.float(), key=request.key.float())
        with torch.autocast(value.device.type, enabled=False):
            return _reading(wide, value.float()).to(dtype)


def _reading(request: Request, value: Tensor) -> Tensor:
    if (tiled := read_tiles(request, value, fused=False)) is not None:
        return tiled
    request = request.written()
    query, key, scale = factors(request)
    addends = additive_mask(request, product_dtype(query))
    dropped = partial(drop, rate=request.dropout) if request.dropout else None
    return read_dots(query * scale, key, value, *addends, dropped)
