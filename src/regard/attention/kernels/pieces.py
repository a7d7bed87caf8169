"""The tiles of a request for dot products one after another, with what is added to the scores of each."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.attention.dropout import draw
from regard.attention.kernels.apart import Calls
from regard.attention.kernels.recomputing import BIAS, QUERY, Blocks, leaves_of, record_mark
from regard.attention.kernels.request import Request
from regard.attention.masks.positions import Band
from regard.attention.masks.tiles import Tile, are_independent
from regard.attention.positions.biases import is_relative
from regard.attention.products import divided
from regard.attention.shapes import Shape
from regard.attention.versions import Reads, Versions

KEPT = 2  # tables of additions that are held: the strips of a window are alike, except at its ends
Place = tuple[slice | Tensor, ...]
Additions = tuple[Tensor | None, Tensor | None]


class Piece(NamedTuple):
    """A tile of some batch entries.

    Attributes:
        rows, columns: the place of its queries and of its keys in tensors with four axes.
        window: which keys may be read; None where the tile has no rule, or a band.
        number: its place among the pieces of the request.
    """

    tile: Tile
    rows: Place
    columns: Place
    window: Tensor | None
    number: int

    def within(self, plane: Tensor) -> Place:
        """The place of its pairs in a bias, of whose axes those of size 1 stay."""
        sizes = zip((*self.rows, self.columns[-1]), plane.shape, strict=True)
        return tuple(place if size > 1 else slice(None) for place, size in sizes)


@dataclass
class Tiling:
    """The tiles of each entry of the first batch axis, or of all entries at once, and the constants."""

    request: Request
    entries: list[list[Tile]]
    batch: Shape
    scale: float
    dtype: torch.dtype
    leaves: Sequence[Tensor] = ()  # that a bias function reads, with gradients
    versions: Versions = field(default_factory=Versions)
    tables: dict[Any, Additions] = field(default_factory=dict)
    seed: int = 0  # of dropout

    def __post_init__(self) -> None:
        if self.request.dropout:
            self.seed = int(torch.randint(1 << 62, (), device="cpu"))

    def draw(self, weights: Tensor, piece: Piece) -> Tensor:
        """1 for each weight that dropout keeps, 0 for others: the same in every pass.

        They have a generator of their own: other threads draw from torch's between two pieces.
        """
        generator = torch.Generator().manual_seed(self.seed + piece.number)
        return draw(weights, self.request.dropout, generator)

    def new_rows(self, like: Tensor, *shape: int) -> Tensor:
        """A tensor for what tiles write, a row for each query; 0 where a query may have no tile.

        Tiles write at once: small results that are kept for long between large tables would divide the memory that the
        allocator holds, so that it grows with the square of the length.
        """
        return like.new_empty(shape) if self._is_covered else like.new_zeros(shape)

    @cached_property
    def calls(self) -> Calls | None:
        """The calls that read all queries, where no tile needs more than one; else None."""
        frame, entry = self.request.frame, self.entries[0]
        if self.request.has_bias or len(self.entries) > 1 or not are_independent(entry, frame):
            return None
        return Calls.of(entry, frame.keys)

    @cached_property
    def _is_covered(self) -> bool:
        """Whether every query has a tile."""
        tiles = [tile for entry in self.entries for tile in entry if not tile.joins]
        covered = sum(len(tile.rows) for tile in tiles if tile.rule is None)
        return covered == len(self.entries) * self.request.queries

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
        request = self.request
        tiles = (tile for entry in self.entries for tile in entry)
        ruled = next((tile for tile in tiles if not isinstance(tile.rule, Band | None)), None)
        if ruled is None and request.bias_function is None:
            return True
        since = record_mark()
        reads = Reads([("mask", tensor) for tensor in request.mask_tensors() or []])
        nowhere = torch.arange(1, device=request.frame.device)
        with reads:
            if ruled is not None:
                ruled._replace(rows=ruled.rows[:1]).window(request.frame)
            if request.bias_function is not None:
                leaves = leaves_of(request.bias_between(nowhere, nowhere), since)
                if leaves is None:
                    return False
                self.leaves = leaves
        self.versions = reads.versions()
        return True

    def __iter__(self) -> Iterator[Piece]:
        """Every tile, without the keys at its ends that its rule forbids to all of its queries."""
        size, number = self.size // len(self.entries), 0
        for i, entry in enumerate(self.entries):
            front = slice(i * size, (i + 1) * size), slice(None)
            for tile in entry:
                window = None
                if not isinstance(tile.rule, Band):
                    window = tile.window(self.request.frame)
                if window is not None:
                    tile, window = _trimmed(tile, window)
                    window = self.plane(window)
                if tile.columns:
                    rows = slice(tile.rows.start, tile.rows.stop)
                    columns = slice(tile.columns.start, tile.columns.stop)
                    keys = tile.positions(self.request.frame)[1] if tile.runs else columns
                    yield Piece(tile, (*front, rows), (*front, keys), window, number)
                    number += 1

    def additions(self, piece: Piece, bias: Tensor | None) -> Additions:
        """What is added to the scores of a piece, with -inf at keys that may not be read, and the queries with none.

        `bias` are the numbers of the piece where the request has a tensor of them.
        """
        tile, function = piece.tile, self.request.bias_function
        is_alike = function is None or (is_relative(function) and not self.leaves)
        if bias is not None or piece.window is not None or not is_alike:
            return self._additions(piece, bias)
        if tile.rule is None and function is None:
            return None, None
        shift = tile.columns.start - tile.rows.start
        table = tile.rule, shift, len(tile.rows), len(tile.columns)
        if table not in self.tables:
            if len(self.tables) == KEPT:
                del self.tables[next(iter(self.tables))]
            self.tables[table] = self._additions(piece, None)
        return self.tables[table]

    def _additions(self, piece: Piece, bias: Tensor | None) -> Additions:
        request, window = self.request, piece.window
        if window is None and (window := piece.tile.window(request.frame)) is not None:
            window = self.plane(window)
        if request.bias_function is not None:
            bias = self.plane(request.bias_between(*piece.tile.positions(request.frame)))
            front = piece.within(bias)[:2]  # it has the rows and columns of the piece already
            bias = bias[front]
        if bias is None:
            return (None, None) if window is None else _forbid(window, self.dtype)
        added = divided(bias, self.dtype, self.temperature)
        if window is not None:
            added = torch.where(window, added, -torch.inf)
        blank = added.detach().amax(-1, keepdim=True) == -torch.inf
        return added, blank if blank.any() else None


def _forbid(window: Tensor, dtype: torch.dtype) -> Additions:
    # 1 - 1 / 1 = 0 and 1 - 1 / 0 = -inf, in a tenth of the time of torch.where
    added = window.to(dtype).reciprocal_().neg_().add_(1)
    readable = window.any(-1, keepdim=True)
    return added, None if readable.all() else ~readable


def _trimmed(tile: Tile, window: Tensor) -> tuple[Tile, Tensor]:
    """The tile and its window from the first to the last key that a query reads."""
    if tile.runs:
        return tile, window
    keys = window.flatten(0, -2).any(0).nonzero()
    if not len(keys):
        return tile._replace(columns=range(0)), window
    start, stop = int(keys[0]), int(keys[-1]) + 1
    return tile._replace(columns=tile.columns[start:stop]), window[..., start:stop]


def flat(tensor: Tensor, batch: Shape) -> Tensor:
    """The tensor as (batch, heads, length, width), expanded without a copy where a view can."""
    if tensor.shape[:-2] == batch and len(batch) < 3:
        return tensor if len(batch) == 2 else tensor.view(*(1,) * (2 - len(batch)), *tensor.shape)
    plane = tensor.shape[-2:]
    stored_heads, heads = tensor.shape[-3] if tensor.ndim > 2 else 1, batch[-1] if batch else 1
    if tensor.shape[:-2] != batch:
        tensor = tensor.expand(*batch[:-1], stored_heads, *plane)
    return tensor.reshape(prod(batch[:-1]), stored_heads, *plane).expand(-1, heads, *plane)


class PieceBlocks(Blocks):
    """Blocks that are pieces, of tensors with four axes."""

    spans: Tiling

    def place(self, side: int, tensor: Tensor, span: Any) -> Any:
        if side == BIAS:
            return span.within(tensor)
        return span.rows if side == QUERY else span.columns
