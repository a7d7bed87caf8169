"""Softmax over dot products, tile by tile: pairs that may not be read take no time and no memory.

A tile is a call of the kernel of torch's fused attention, which also returns the logarithm of the sum of each row.
These sums join the readings of tiles with the same queries. The backward pass of a tile takes the reading and the sum
of the whole row, so its weights, exp(score - sum), are those of the whole row (Dao 2023, arXiv 2307.08691, section
3.1).

The fused kernel has no dropout and no gradient of a bias. For these a tile holds all keys of its queries and is two
products with a softmax between, computed again in the backward pass.
"""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.dropout import keep
from regard.attention.kernels.blocked import is_large
from regard.attention.kernels.dots import factors
from regard.attention.kernels.recomputing import BIAS, OTHERS, Surroundings, leaves_of, now
from regard.attention.kernels.request import Request
from regard.attention.masks import Given
from regard.attention.masks.positions import Band
from regard.attention.masks.tiles import Tile, positions, tiles
from regard.attention.products import divided, product_dtype, widen
from regard.attention.shapes import Shape
from regard.attention.versions import Reads, Versions
from regard.loops.availability import differentiated, transformed

AREA = 1 << 20  # pairs from which tiles are worth their calls (benchmarks/masks.py)
ROOM = 1 << 20  # scores that are written out at a time
SHARE = 0.75  # of the pairs: two products of more are faster as a whole than computed again
MOST = 0.999  # of the weights that are dropped at random; beyond, all are
EVERYTHING = Band(None, None)
Place = tuple[slice, ...]
Additions = tuple[Tensor | None, Tensor | None]

_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


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


def divide(request: Request, fused: bool) -> list[list[Tile]] | None:
    """The tiles of each entry of the first batch axis, or of all entries at once, for the fused kernel or for products.

    None where the other of the two serves the request, or where tiles are impossible or do not pay.
    """
    if tiles_objection(request) or (request.dropout > 0 or request.trains_bias) == fused:
        return None
    mask = EVERYTHING if request.mask is None else request.mask
    mask = Given(mask) if isinstance(mask, Tensor) else mask
    entries, pairs = mask.entries(request.frame), _pairs(request)
    if entries is None or pairs < AREA * len(entries):
        entries = [mask]
    size = prod(request.batch()) // len(entries)
    room = None if fused and not request.has_bias else max(1, ROOM // size)
    division = [tiles(entry, request.frame, room) for entry in entries]
    dense = size * area(division) > SHARE * pairs and not is_large(request)
    return None if dense and not fused else division


def area(division: list[list[Tile]]) -> int:
    """The pairs within tiles."""
    return sum(len(tile.rows) * len(tile.columns) for entry in division for tile in entry)


def read_tiles(request: Request, value: Tensor, fused: bool) -> Tensor | None:
    """The reading, by the fused kernel or by products; None where there are no tiles for it."""
    division = divide(request, fused)
    if division is None:
        return None
    query, key, scale = factors(request)
    batch, bias, width = request.batch(), request.bias, max(query.shape[-1], value.shape[-1])
    tiling = Tiling(request, division, batch, scale, product_dtype(query), fused)
    if torch.is_grad_enabled() and not tiling.probe():
        return None
    sides = [tiling.flat(side.to(tiling.dtype)) for side in (query, key, value)]
    sides = [_padded(side, width) for side in sides] if fused else sides
    plane = None if bias is None else tiling.plane(bias)
    reading: Tensor = _Tiled.apply(tiling, *sides, plane, *tiling.leaves)  # type: ignore[no-untyped-call]
    return reading[..., : value.shape[-1]].reshape(*batch, request.queries, value.shape[-1])


def _pairs(request: Request) -> int:
    return prod(request.frame.batch) * request.queries * request.keys


def _padded(tensor: Tensor, width: int) -> Tensor:
    """The vectors with zeros up to a width: the fused kernel has one width for keys and values."""
    tensor = tensor if tensor.shape[-1] == width else F.pad(tensor, (0, width - tensor.shape[-1]))
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def flat(tensor: Tensor, batch: Shape) -> Tensor:
    """The tensor as (batch, heads, length, width), expanded without a copy where a view can."""
    if tensor.shape[:-2] == batch and len(batch) < 3:
        return tensor if len(batch) == 2 else tensor[(None,) * (2 - len(batch))]
    plane = tensor.shape[-2:]
    stored_heads, heads = tensor.shape[-3] if tensor.ndim > 2 else 1, batch[-1] if batch else 1
    if tensor.shape[:-2] != batch:
        tensor = tensor.expand(*batch[:-1], stored_heads, *plane)
    return tensor.reshape(prod(batch[:-1]), stored_heads, *plane).expand(-1, heads, *plane)


class Piece(NamedTuple):
    """A tile of some batch entries: where its queries, keys and bias are, and what its scores need.

    Attributes:
        added: the bias, and -inf where a query may not read a key; None where nothing is added.
        blank: which queries have nothing to read; None where all have something.
    """

    tile: Tile
    rows: Place
    columns: Place
    bias: Place
    added: Tensor | None
    blank: Tensor | None


@dataclass
class Tiling:
    """The tiles of each entry of the first batch axis, or of all entries at once, and the constants."""

    request: Request
    entries: list[list[Tile]]
    batch: Shape
    scale: float
    dtype: torch.dtype
    fused: bool
    leaves: Sequence[Tensor] = ()  # that a bias function reads, with gradients
    versions: Versions = field(default_factory=Versions)
    surroundings: Surroundings | None = None

    @property
    def size(self) -> int:
        """The entries of the first of the two batch axes."""
        return self.batch[0] if len(self.batch) == 1 else prod(self.batch[:-1])

    @property
    def temperature(self) -> float:
        return self.request.normaliser.temperature  # type: ignore[attr-defined,no-any-return]

    def flat(self, tensor: Tensor) -> Tensor:
        """The tensor as (batch, heads, length, width); entries differ along the first of these."""
        if len(self.batch) != 1:
            return flat(tensor, self.batch)
        return flat(tensor.unsqueeze(-3) if tensor.ndim > 2 else tensor, (*self.batch, 1))

    def plane(self, plane: Tensor) -> Tensor:
        """A bias or window with four axes; one of size 1 is the same for all entries or heads."""
        front = plane.shape[:-2]
        if prod(front) == 1:
            return plane.reshape(1, 1, *plane.shape[-2:])
        return plane if len(front) == len(self.batch) == 2 else self.flat(plane)

    def probe(self) -> bool:
        """Note the tensors that rules and a bias function read: they must not change before the backward pass.

        False where a bias function uses a tensor computed before, whose history must not be walked again.
        """
        request, since = self.request, now()
        reads = Reads([("mask", tensor) for tensor in request.mask_tensors() or []])
        nowhere = torch.arange(1, device=request.frame.device)
        with reads:
            ruled = (tile for entry in self.entries for tile in entry if tile.rule is not None)
            if (tile := next(ruled, None)) is not None:
                tile._replace(rows=tile.rows[:1]).window(request.frame)
            if request.bias_function is not None:
                leaves = leaves_of(request.bias_between(nowhere, nowhere), since)
                if leaves is None:
                    return False
                self.leaves = leaves
        self.versions = reads.versions()
        return True

    def numbers(self, tile: Tile, bias: Tensor | None, place: Place) -> Tensor | None:
        """The bias of a tile over the temperature of the softmax, from a tensor at a place or from the function."""
        request = self.request
        if request.bias_function is not None:
            at = positions(tile.rows, tile.columns, request.frame)
            bias = self.plane(request.bias_between(*at))
            place = _within(bias, (*place[:2], slice(None), slice(None)))
        return None if bias is None else divided(bias[place], self.dtype, self.temperature)

    def pieces(self, bias: Tensor | None) -> Iterator[Piece]:
        """Every tile, without the keys at its ends that its rule forbids to all of its queries."""
        frame, size = self.request.frame, self.size // len(self.entries)
        for i, entry in enumerate(self.entries):
            front = slice(i * size, (i + 1) * size), slice(None)
            for tile in entry:
                if isinstance(tile.rule, Band) and not self.request.has_bias:
                    band = tile.rule.within(tile.rows, tile.columns, frame)
                    additions = _band(band, len(tile.rows), len(tile.columns), self.dtype)
                    place: Place = ()
                else:
                    tile, window = _trimmed(tile, tile.window(frame))
                    if not tile.columns:
                        continue
                    place = (*front, _slice(tile.rows), _slice(tile.columns))
                    place = place if bias is None else _within(bias, place)
                    window = None if window is None else self.plane(window)
                    additions = _additions(window, self.numbers(tile, bias, place), self.dtype)
                rows, columns = ((*front, _slice(side)) for side in (tile.rows, tile.columns))
                yield Piece(tile, rows, columns, place, *additions)


def _slice(side: range) -> slice:
    return slice(side.start, side.stop)


def _within(plane: Tensor, place: Place) -> Place:
    """A place in a plane, of whose axes those of size 1 stay."""
    sizes = zip(place, plane.shape, strict=True)
    return tuple(part if size > 1 else slice(None) for part, size in sizes)


def _trimmed(tile: Tile, window: Tensor | None) -> tuple[Tile, Tensor | None]:
    """The tile and its window from the first to the last key that a query reads."""
    if window is None:
        return tile, None
    keys = window.flatten(0, -2).any(0).nonzero()
    if not len(keys):
        return tile._replace(columns=range(0)), None
    start, stop = int(keys[0]), int(keys[-1]) + 1
    return tile._replace(columns=tile.columns[start:stop]), window[..., start:stop]


@lru_cache(maxsize=16)
def _band(band: Band, rows: int, columns: int, dtype: torch.dtype) -> Additions:
    """The strips of a band are alike, so one table serves them all."""
    return _additions(band.dense((1, 1), rows, columns), None, dtype)


def _additions(window: Tensor | None, bias: Tensor | None, dtype: torch.dtype) -> Additions:
    """What is added to scores, and the queries with nothing to read."""
    added = bias
    if window is not None and bias is not None:
        added = torch.where(window, bias, -torch.inf)
    elif window is not None:
        # 1 - 1 / 1 = 0 and 1 - 1 / 0 = -inf, in a tenth of the time of torch.where
        added = window.to(dtype).reciprocal_().neg_().add_(1)
    if added is None:
        return None, None
    blank = added.amax(-1, keepdim=True) == -torch.inf
    return added, blank if blank.any() else None


class _Tiled(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        tiling: Tiling,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None,
        *leaves: Tensor,
    ) -> Tensor:
        reading = value.new_zeros(*query.shape[:-1], value.shape[-1])
        sums = widen(query[..., :1]).new_zeros(*query.shape[:-1], 1)
        if tiling.request.dropout:
            tiling.surroundings = Surroundings(query)
        read = _fused if tiling.fused else _products
        for piece in tiling.pieces(bias):
            rows, columns = piece.rows, piece.columns
            tile_reading, tile_sums = read(tiling, piece, query[rows], key[columns], value[columns])
            if piece.tile.joins:
                _join(reading[rows], sums[rows], tile_reading, tile_sums)
            else:
                reading[rows], sums[rows] = tile_reading, tile_sums
        ctx.tiling = tiling
        ctx.save_for_backward(query, key, value, bias, reading, sums)
        return reading

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Any:
        gradients = _TiledGradients.apply(  # type: ignore[no-untyped-call]
            ctx.tiling, ctx.needs_input_grad[1:], upstream.contiguous(), *ctx.saved_tensors
        )
        return (None, *gradients)


class _TiledGradients(torch.autograd.Function):
    """The gradients, as a function whose own gradients are refused: torch has none of the fused kernel."""

    @staticmethod
    def forward(
        ctx: Any,
        tiling: Tiling,
        needs: tuple[bool, ...],
        upstream: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None,
        reading: Tensor,
        sums: Tensor,
    ) -> tuple[Tensor | None, ...]:
        tiling.versions.check_gradients()
        sides = query, key, value, bias, *tiling.leaves
        totals: list[Any] = [
            None if side is None or not need else widen(torch.zeros_like(side))
            for side, need in zip(sides, needs, strict=True)
        ]
        differentiate = _fused_gradients if tiling.fused else _product_gradients
        with tiling.surroundings.again() if tiling.surroundings else nullcontext():
            for piece in tiling.pieces(bias):
                rows, columns = piece.rows, piece.columns
                tile = query[rows], key[columns], value[columns], reading[rows], sums[rows]
                *gradients, of_scores = differentiate(tiling, piece, upstream[rows], *tile)
                for total, place, gradient in zip(
                    totals, (rows, columns, columns), gradients, strict=False
                ):
                    if total is not None:
                        total[place] += gradient
                if bias is not None and totals[BIAS] is not None:
                    of_bias = of_scores.sum_to_size(bias[piece.bias].shape)
                    totals[BIAS][piece.bias] += of_bias / tiling.temperature
                if tiling.leaves:
                    for total, gradient in zip(
                        totals[OTHERS:], _leaf_gradients(tiling, piece, of_scores), strict=True
                    ):
                        total += gradient
        return tuple(
            None if side is None or total is None else total.to(side.dtype)
            for total, side in zip(totals, sides, strict=True)
        )

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        raise NotImplementedError(
            "attention over tiles has no second gradients: pin regard.kernel('blocked')"
        )


def _fused(
    tiling: Tiling, piece: Piece, query: Tensor, key: Tensor, value: Tensor
) -> tuple[Tensor, Tensor]:
    """The reading of a tile, and the logarithm of the sum of each row; 0 where nothing may be read."""
    reading, sums = _forward(
        query, key, value, is_causal=piece.tile.triangle, attn_mask=piece.added, scale=tiling.scale
    )
    sums = sums.unsqueeze(-1)
    return reading, sums if piece.blank is None else sums.masked_fill(piece.blank, 0.0)


def _fused_gradients(
    tiling: Tiling,
    piece: Piece,
    upstream: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    reading: Tensor,
    sums: Tensor,
) -> tuple[Tensor, ...]:
    sides = upstream, query, key, value, reading, sums.squeeze(-1)
    return (
        *_backward(*sides, 0.0, piece.tile.triangle, attn_mask=piece.added, scale=tiling.scale),
        None,
    )


def _products(
    tiling: Tiling, piece: Piece, query: Tensor, key: Tensor, value: Tensor
) -> tuple[Tensor, Tensor]:
    """The reading of a tile that holds all keys of its queries."""
    weights = _weights(tiling, piece, query, key)
    if tiling.request.dropout:
        weights *= keep(weights, tiling.request.dropout)
    return weights @ value, weights.new_zeros(())


def _product_gradients(
    tiling: Tiling,
    piece: Piece,
    upstream: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    reading: Tensor,
    sums: Tensor,
) -> tuple[Tensor, ...]:
    weights, of_weights = _weights(tiling, piece, query, key), upstream @ value.mT
    dropped = weights
    if tiling.request.dropout:
        factor = keep(weights, tiling.request.dropout)
        dropped, of_weights = weights * factor, of_weights.mul_(factor)
    of_scores = of_weights.sub_((upstream * reading).sum(-1, keepdim=True)).mul_(weights)
    of_query, of_key = of_scores @ key * tiling.scale, of_scores.mT @ query * tiling.scale
    return of_query, of_key, dropped.mT @ upstream, of_scores


def _leaf_gradients(tiling: Tiling, piece: Piece, of_scores: Tensor) -> tuple[Tensor, ...]:
    """The gradients of the tensors that a bias function reads."""
    with torch.enable_grad():
        numbers = tiling.numbers(piece.tile, None, piece.bias)
    assert numbers is not None
    return torch.autograd.grad(numbers, tiling.leaves, of_scores.sum_to_size(numbers.shape))


def _weights(tiling: Tiling, piece: Piece, query: Tensor, key: Tensor) -> Tensor:
    scores = (query * tiling.scale) @ key.mT
    weights = (scores if piece.added is None else scores.add_(piece.added)).softmax(-1)
    return weights if piece.blank is None else weights.masked_fill_(piece.blank, 0.0)


def _join(reading: Tensor, sums: Tensor, tile_reading: Tensor, tile_sums: Tensor) -> None:
    """Join the tile's reading to that of the same rows: each weighs as its share in the sum of both."""
    total = torch.logaddexp(sums, tile_sums)
    reading.copy_(reading * (sums - total).exp() + tile_reading * (tile_sums - total).exp())
    sums.copy_(total)
