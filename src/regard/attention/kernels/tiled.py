"""Softmax over dot products, tile by tile: pairs that may not be read take no time and no memory.

A tile is a call of the kernel of torch's fused attention, which also returns the logarithm of the sum of each row.
These sums join the readings of tiles with the same queries. The backward pass of a tile takes the reading and the sum
of the whole row, so its weights, exp(score - sum), are those of the whole row (Dao 2023, arXiv 2307.08691, section
3.1).

The fused kernel has no dropout, no gradient of a bias and no second gradients. For these a tile holds all keys of its
queries and is two products with a softmax between, computed again in the backward pass.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.dropout import growth
from regard.attention.kernels.apart import (
    fused_backward,
    fused_forward,
    gradients_apart,
    read_apart,
)
from regard.attention.kernels.dots import factors, read_dots
from regard.attention.kernels.pieces import Piece, PieceBlocks, Tiling
from regard.attention.kernels.recomputing import (
    BIAS,
    OTHERS,
    Blocks,
    Recomputed,
    RecomputedGradients,
    Surroundings,
    check_leaves,
    record_mark,
)
from regard.attention.kernels.request import Request
from regard.attention.kernels.zeroed import finite, has_nan
from regard.attention.masks import Given
from regard.attention.masks.positions import Band
from regard.attention.masks.tiles import Tile, tiles
from regard.attention.products import product_dtype, widen
from regard.attention.versions import Versions
from regard.loops.availability import differentiated, transformed

AREA = 1 << 20  # pairs from which tiles are worth their calls (benchmarks/masks.py)
ROOM = 1 << 20  # scores that are written out at a time
SHARE = 0.75  # of the pairs: two products of more are faster as a whole than computed again
# Pairs of a batch entry from which products in tiles are always faster: 0.92 of the time of the whole.
WHOLE = 1 << 22
MOST = 0.999  # of the weights that are dropped at random; beyond, all are
EVERYTHING = Band(None, None)
Division = list[list[Tile]]  # the tiles of each batch entry, or of all at once

softmax_backward = torch.ops.aten._softmax_backward_data


def tiles_objection(request: Request) -> str | None:
    """Why a request for dot products is not divided into tiles, or None."""
    if not (request.is_masked or request.dropout):
        return "every query reads every key"
    if transformed() or differentiated():
        return "torch.compile and torch.func need the operations as they are"
    if not request.query.is_cpu:
        return "tiles are for processors"
    if _pairs(request) < AREA:
        return f"there are fewer than {AREA} pairs"
    return "all weights are dropped" if request.dropout > MOST else None


def divide(request: Request, fused: bool) -> Division | None:
    """The tiles of each entry of the first batch axis, or of all entries at once, for the fused kernel or for products.

    None where the other of the two serves the request, or where tiles are impossible or do not pay.
    """
    if tiles_objection(request) or (request.dropout > 0 or request.trains_bias) == fused:
        return None
    division = _division(request, is_written=not fused or request.has_bias)
    size = prod(request.batch()) // len(division)
    dense = size * area(division) > SHARE * _pairs(request)
    is_short = request.queries * request.keys < WHOLE and not request.is_large
    return None if dense and is_short and not fused else division


def _division(request: Request, is_written: bool) -> Division:
    """The tiles, of at most ROOM pairs where something of that size is written out."""
    layout = request.layout
    if layout is None:
        return _new_division(request, is_written)
    question = "tiles", is_written, request.batch()
    return layout.once(question, lambda: _new_division(request, is_written))


def _new_division(request: Request, is_written: bool) -> Division:
    mask = EVERYTHING if request.mask is None else request.mask
    mask = Given(mask) if isinstance(mask, Tensor) else mask
    entries = mask.entries(request.frame)
    # A bias with more axes puts its own before those that the entries of the mask follow.
    has_more_axes = len(request.batch()) > len(request.frame.batch)
    if entries is None or has_more_axes or _pairs(request) < AREA * len(entries):
        entries = [mask]
    room = max(1, ROOM * len(entries) // prod(request.batch())) if is_written else None
    return [tiles(entry, request.frame, room) for entry in entries]


def area(division: Division) -> int:
    """The pairs within tiles."""
    return sum(len(tile.rows) * tile.keys for entry in division for tile in entry)


def read_tiles(request: Request, value: Tensor, fused: bool) -> Tensor | None:
    """The reading, by the fused kernel or by products; None where there are no tiles for it."""
    division = divide(request, fused)
    if division is None:
        return None
    query, key, scale = factors(request)
    has_vectors = request.has_vectors(query, key)
    if not fused:
        query, scale = query * scale, 1.0
    batch, bias, width = request.batch(), request.bias, max(query.shape[-1], value.shape[-1])
    tiling = Tiling(request, division, batch, scale, product_dtype(query))
    if torch.is_grad_enabled() and not tiling.probe():
        return None
    sides = [tiling.flat(side.to(tiling.dtype)) for side in (query, key, value)]
    plane = None if bias is None else tiling.plane(bias)
    sides = [_padded(side, width) for side in sides] if fused else sides
    request.checks_gradients = request.is_checked and has_vectors
    if fused and torch.is_grad_enabled():
        reading = _Fused.apply(tiling, *sides, plane)  # type: ignore[no-untyped-call]
    elif fused:
        reading, _ = _fused(tiling, sides[0], sides[1], sides[2], plane)
    else:
        reading = Recomputed.apply(_blocks(tiling), *sides, plane, *tiling.leaves)  # type: ignore[no-untyped-call]
    if request.dropout:
        reading = reading * growth(request.dropout)
    return reading[..., : value.shape[-1]].reshape(*batch, request.queries, value.shape[-1])  # type: ignore[no-any-return]


def _pairs(request: Request) -> int:
    return prod(request.frame.batch) * request.queries * request.keys


def _padded(tensor: Tensor, width: int) -> Tensor:
    """The vectors with zeros up to a width: the fused kernel has one width for keys and values."""
    tensor = tensor if tensor.shape[-1] == width else F.pad(tensor, (0, width - tensor.shape[-1]))
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _blocks(tiling: Tiling) -> Blocks:
    """The pieces as products of queries that are scaled before, and readings that dropout has not scaled yet."""

    def read(
        query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, piece: Piece
    ) -> Tensor:
        def dropped(weights: Tensor) -> Tensor:
            return weights * tiling.draw(weights, piece)

        addends = tiling.additions(piece, bias)
        return read_dots(query, key, value, *addends, dropped if tiling.request.dropout else None)

    blocks = Products(read, tiling, hides=tiling.request.checks_gradients)
    return blocks.unless_changed(tiling.versions)


def _fused(
    tiling: Tiling, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The reading, and the logarithm of the sum of each row."""
    if tiling.calls is not None:
        return read_apart(tiling.calls, query, key, value, tiling.scale)
    reading = tiling.new_rows(value, *query.shape)
    sums = tiling.new_rows(widen(query[..., 0]), *query.shape[:-1])
    for piece in tiling:
        rows, columns = piece.rows, piece.columns
        sides = query[rows], key[columns], value[columns]
        added, blank = tiling.additions(piece, _numbers(bias, piece))
        tile_reading, tile_sums = fused_forward(
            *sides, is_causal=piece.tile.triangle, attn_mask=added, scale=tiling.scale
        )
        if blank is not None:
            tile_sums = tile_sums.masked_fill(blank.squeeze(-1), 0.0)
        if piece.tile.joins:
            _join(reading[rows], sums[rows], tile_reading, tile_sums)
        else:
            reading[rows], sums[rows] = tile_reading, tile_sums
    return reading, sums


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, tiling: Tiling, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None
    ) -> Tensor:
        ctx.tiling, ctx.surroundings = tiling, Surroundings(query)
        # Gradients of gradients divide the mask again.
        tensors = tiling.request.mask_tensors() or []
        ctx.mask_versions = Versions(("mask", tensor) for tensor in tensors)
        reading, sums = _fused(tiling, query, key, value, bias)
        ctx.save_for_backward(query, key, value, bias, reading, sums)
        return reading

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Any:
        tiling: Tiling = ctx.tiling
        query, key, value, bias, reading, sums = ctx.saved_tensors
        sides = query, key, value
        if torch.is_grad_enabled():  # create_graph=True
            ctx.mask_versions.check_gradients()
            division = _division(tiling.request, is_written=True)
            blocks = _blocks(replace(tiling, entries=division))
            constants = blocks, ctx.surroundings, ctx.needs_input_grad[1:], upstream
            if tiling.request.checks_gradients:
                query, key = finite(query), finite(key)
            sides = query * tiling.scale, key, value
            of_query, *others = RecomputedGradients.apply(*constants, *sides, bias)  # type: ignore[no-untyped-call]
            return None, None if of_query is None else of_query * tiling.scale, *others
        tiling.versions.check_gradients()
        remaining = upstream.contiguous(), bias, reading, sums
        with ctx.surroundings.restore():
            totals = _fused_gradients(tiling, sides, *remaining)
            if tiling.request.checks_gradients and (has_nan(totals[0]) or has_nan(totals[1])):
                sides = finite(query), finite(key), value
                totals = _fused_gradients(tiling, sides, *remaining)
        return None, *(total.to(tiling.dtype) for total in totals), None


def _fused_gradients(
    tiling: Tiling,
    sides: Sequence[Tensor],
    upstream: Tensor,
    bias: Tensor | None,
    reading: Tensor,
    sums: Tensor,
) -> list[Tensor]:
    """The gradients of queries, keys and values."""
    if tiling.calls is not None:
        return gradients_apart(tiling.calls, upstream, sides, reading, sums, tiling.scale)
    query, key, value = sides
    totals = [widen(torch.zeros_like(side)) for side in sides]
    for piece in tiling:
        rows, columns = piece.rows, piece.columns
        added, _ = tiling.additions(piece, _numbers(bias, piece))
        gradients = fused_backward(
            upstream[rows],
            *(query[rows], key[columns], value[columns], reading[rows], sums[rows]),
            0.0,
            piece.tile.triangle,
            attn_mask=added,
            scale=tiling.scale,
        )
        for total, place, gradient in zip(totals, (rows, columns, columns), gradients, strict=True):
            total[place].add_(gradient)
    return totals


class Products(PieceBlocks):
    """Pieces that hold all keys of their queries, with dropout, and gradients of a bias."""

    def write(self, tensors: Sequence[Any]) -> Tensor:
        """The reading; queries without a tile have nothing to read."""
        tiling = self.spans
        query, key, value, bias = tensors[:OTHERS]
        reading = tiling.new_rows(value, *query.shape[:-1], value.shape[-1])
        for piece in tiling:
            weights = _weights(tiling, piece, query, key, bias)
            if tiling.request.dropout:
                weights.mul_(tiling.draw(weights, piece))
            reading[piece.rows] = weights @ value[piece.columns]
        tiling.versions.leave_out_changed()
        return reading

    @torch.no_grad()
    def gradients(
        self, tensors: Sequence[Any], needs: Sequence[bool], upstream: Tensor
    ) -> list[Tensor | None]:
        """The gradients by their equations, in half to three quarters of the time that autograd takes."""
        tiling = self.spans
        tiling.versions.check_gradients()
        query, key, value, bias, *leaves = tensors
        totals: list[Any] = [
            torch.zeros_like(side) if need else None
            for side, need in zip(tensors, needs, strict=True)
        ]
        for piece in tiling:
            *of_vectors, of_scores = _product_gradients(
                tiling, piece, upstream[piece.rows], query, key, value, bias
            )
            for side, gradient in enumerate(of_vectors):
                if totals[side] is not None:
                    totals[side][self.place(side, totals[side], piece)].add_(gradient)
            if bias is not None and totals[BIAS] is not None:
                place = piece.within(bias)
                of_bias = of_scores.sum_to_size(bias[place].shape)
                totals[BIAS][place] += of_bias / tiling.temperature
            if leaves:
                learned = _leaf_gradients(tiling, piece, of_scores)
                for total, of_leaf in zip(totals[OTHERS:], learned, strict=True):
                    if of_leaf is not None:
                        total += of_leaf
        return totals


def _product_gradients(
    tiling: Tiling,
    piece: Piece,
    upstream: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of the queries, keys and values of a piece, and of its scores."""
    weights = _weights(tiling, piece, query, key, bias)
    of_weights, dropped = upstream @ value[piece.columns].mT, weights
    if tiling.request.dropout:
        keep = tiling.draw(weights, piece)
        of_weights.mul_(keep)
        dropped = keep.mul_(weights)
    of_scores = softmax_backward(of_weights, weights, -1, weights.dtype)
    of_query, of_key = of_scores @ key[piece.columns], of_scores.mT @ query[piece.rows]
    return of_query, of_key, dropped.mT @ upstream, of_scores


def _leaf_gradients(tiling: Tiling, piece: Piece, of_scores: Tensor) -> Sequence[Tensor | None]:
    """The gradients of the tensors that a bias function reads; None where it reads them for other positions."""
    since = record_mark()
    with torch.enable_grad():
        added, _ = tiling.additions(piece, None)
    assert added is not None
    check_leaves(added, since, tiling.leaves)
    if not added.requires_grad:
        return [None] * len(tiling.leaves)
    # Where nothing may be read the weight is 0, and so is the gradient of the score.
    upstream = of_scores.sum_to_size(added.shape)
    return torch.autograd.grad(added, tiling.leaves, upstream, allow_unused=True)


def _weights(
    tiling: Tiling, piece: Piece, query: Tensor, key: Tensor, bias: Tensor | None
) -> Tensor:
    added, blank = tiling.additions(piece, _numbers(bias, piece))
    scores = query[piece.rows] @ key[piece.columns].mT
    weights = (scores if added is None else scores.add_(added)).softmax(-1)
    return weights if blank is None else weights.masked_fill_(blank, 0.0)


def _numbers(bias: Tensor | None, piece: Piece) -> Tensor | None:
    return None if bias is None else bias[piece.within(bias)]


def _join(reading: Tensor, sums: Tensor, tile_reading: Tensor, tile_sums: Tensor) -> None:
    """Join the tile's reading to that of the same rows: each weighs as its share in the sum of both."""
    total = torch.logaddexp(sums, tile_sums)
    share, tile_share = ((side - total).exp().unsqueeze(-1) for side in (sums, tile_sums))
    reading.copy_(reading * share + tile_reading * tile_share)
    sums.copy_(total)
