"""torch's fused attention over the tiles of a mask: pairs that may not be read take no time and no memory.

Each tile is one call of the fused kernel, which also returns the logarithm of the sum of each row. These sums join
the readings of tiles with the same queries. The backward pass of a tile takes the reading and the sum of the whole
row, so its weights, exp(score - sum), are those of the whole row (Dao 2023, arXiv 2307.08691, section 3.1).
"""

from collections.abc import Iterator
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.kernels.request import Request
from regard.attention.masks import Mask
from regard.attention.masks.tiles import Tile, tiles
from regard.attention.products import widen
from regard.loops.availability import transformed

AREA = 1 << 20  # pairs from which tiles are worth their calls (benchmarks/masks.py)
Plan = list[list[Tile]]  # for each entry of the first batch axis, or one for all
Index = tuple[slice, slice, slice]

_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def plan_for(request: Request) -> Plan | None:
    """The tiles of a request's mask; None where it has none, or too few pairs to gain by them."""
    mask, frame = request.mask, request.frame
    if not isinstance(mask, Mask) or request.bias is not None or request.dropout:
        return None
    pairs = prod(frame.batch) * frame.queries * frame.keys
    if pairs < AREA or not request.query.is_cpu or transformed():
        return None
    entries = mask.entries(frame)
    if not entries or request.batch() != frame.batch:  # some entries are those of the mask alone
        return None
    return [tiles(entry, frame) for entry in entries] if pairs // len(entries) >= AREA else None


def read_tiles(plan: Plan, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """The reading, (batch, heads, queries, d_value), of tensors (batch, heads, length, width)."""
    width = max(query.shape[-1], value.shape[-1])
    padded = (_padded(tensor, width) for tensor in (query, key, value))
    reading: Tensor = _Tiled.apply(plan, scale, *padded)  # type: ignore[no-untyped-call]
    return reading[..., : value.shape[-1]]


def _padded(tensor: Tensor, width: int) -> Tensor:
    """The vectors with zeros up to a width: the fused kernel has one width for keys and values."""
    tensor = tensor if tensor.shape[-1] == width else F.pad(tensor, (0, width - tensor.shape[-1]))
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


class _Tiled(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, plan: Plan, scale: float, query: Tensor, key: Tensor, value: Tensor
    ) -> Tensor:
        reading = query.new_zeros(query.shape)
        sums = query.new_full(query.shape[:-1], -torch.inf, dtype=widen(query[..., :0]).dtype)
        for rows, columns, tile in _each(plan, query):
            tile_reading, tile_sums = _forward(
                query[rows],
                key[columns],
                value[columns],
                is_causal=tile.triangle,
                attn_mask=_added(tile.window, query.dtype),
                scale=scale,
            )
            if tile.window is not None:  # a row with nothing to read has no sum
                tile_sums = tile_sums.masked_fill(~tile.window.any(-1), -torch.inf)
            if tile.joins:
                _join(reading[rows], sums[rows], tile_reading, tile_sums)
            else:
                reading[rows], sums[rows] = tile_reading, tile_sums
        ctx.plan, ctx.scale = plan, scale
        # A row with nothing to read has weights exp(-inf - 0) = 0.
        ctx.save_for_backward(query, key, value, reading, sums.masked_fill(sums == -torch.inf, 0.0))
        return reading

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Any:
        gradients = _TiledGradients.apply(  # type: ignore[no-untyped-call]
            ctx.plan, ctx.scale, upstream.contiguous(), *ctx.saved_tensors
        )
        return (None, None, *gradients)


class _TiledGradients(torch.autograd.Function):
    """The gradients, as a function whose own gradients are refused: torch has none of the fused kernel."""

    @staticmethod
    def forward(
        ctx: Any,
        plan: Plan,
        scale: float,
        upstream: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        reading: Tensor,
        sums: Tensor,
    ) -> tuple[Tensor, ...]:
        totals = [widen(tensor.new_zeros(tensor.shape)) for tensor in (query, key, value)]
        for rows, columns, tile in _each(plan, query):
            gradients = _backward(
                upstream[rows],
                query[rows],
                key[columns],
                value[columns],
                reading[rows],
                sums[rows],
                0.0,
                tile.triangle,
                attn_mask=_added(tile.window, query.dtype),
                scale=scale,
            )
            for total, place, gradient in zip(
                totals, (rows, columns, columns), gradients, strict=True
            ):
                total[place] += gradient
        return tuple(total.to(query.dtype) for total in totals)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        raise NotImplementedError(
            "torch's fused attention has no second gradients: pin regard.kernel('blocked')"
        )


def _each(plan: Plan, query: Tensor) -> Iterator[tuple[Index, Index, Tile]]:
    """Every tile, with the places of its queries and keys."""
    size = query.shape[0] // len(plan)
    for i, entry in enumerate(plan):
        batch = slice(i * size, (i + 1) * size)
        for tile in entry:
            rows, columns = (
                (batch, slice(None), slice(side.start, side.stop))
                for side in (tile.rows, tile.columns)
            )
            yield rows, columns, tile


def _added(window: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """The window as numbers to add to scores."""
    if window is None:
        return None
    zeros = window.new_zeros(1, 1, *window.shape, dtype=dtype)
    return zeros.masked_fill(~window, -torch.inf)


def _join(reading: Tensor, sums: Tensor, tile_reading: Tensor, tile_sums: Tensor) -> None:
    """Join the tile's reading to that of the same rows: each weighs as its share in the sum of both."""
    total = torch.logaddexp(sums, tile_sums)
    finite = total.masked_fill(total == -torch.inf, 0.0)
    share, tile_share = ((side - finite).exp().unsqueeze(-1) for side in (sums, tile_sums))
    reading.copy_(reading * share + tile_reading * tile_share)
    sums.copy_(total)
