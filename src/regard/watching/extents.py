"""The extent of the sequences of an attention: the padding of a batch is left out."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.attention.masks.positions import Band
from regard.watching.captured import CapturedCall

BLOCK = 1 << 24  # pairs of a query and a key whose mask is read at a time


class Extent(NamedTuple):
    """The rows that count, the first key, and the place of each row among the keys.

    Masks that are the same for all heads have one axis of size 1 in place of `heads`.
    """

    rows: Bool[Tensor, "entries heads queries"]
    first_keys: Int[Tensor, "entries heads"]
    places: Int[Tensor, "entries heads queries"]

    def of_entry(self, entry: int) -> Extent:
        return Extent(*(each[[entry]] for each in self))


@torch.no_grad()
def extent(
    call: CapturedCall, heads: int, places: Int[Tensor, "queries"], crosses: bool
) -> Extent | None:
    """The part that a mask leaves; None if there is no mask, or one of positions only.

    A row counts if it may read a key. In self-attention its own key must be read too: a key that
    nobody reads is padding, unless the mask lets no row read its own key.

    Args:
        call: the attention.
        heads: how many heads the look has.
        places: the position of each query among the keys.
        crosses: whether the keys are of another sequence than the queries.
    """
    if call.bias is None and (call.mask is None or isinstance(call.mask, Band)):
        return None
    queries, keys = call.shape[-2:]
    if not queries or not keys:
        return None
    places = places.to(call.query.device)
    inside = (places >= 0) & (places < keys)
    key_places = places.clamp(0, keys - 1)
    reads, lows, itself, read = [], [], [], torch.zeros((), dtype=torch.bool)
    for block in torch.arange(queries, device=key_places.device).split(max(1, BLOCK // keys)):
        readable = _by_entry(call.readable(block), call.shape[:-2], heads)
        reads.append(readable.any(-1))
        lows.append(readable.int().argmax(-1))
        itself.append(
            readable.gather(-1, key_places[block, None].expand(*readable.shape[:-1], 1))[..., 0]
        )
        read = read.to(readable.device) | readable.any(-2)
    rows, low = torch.cat(reads, -1), torch.cat(lows, -1)
    if not crosses:
        is_read = read.index_select(-1, key_places) & inside
        rows = rows & (is_read | ~torch.cat(itself, -1).any(-1, keepdim=True))
    first_keys = read.int().argmax(-1)
    if not crosses:
        # The first key moves with the rows of a window: then keys before it are no padding, except
        # where the row of the first key is there too.
        alone = low.masked_fill(~rows, keys).amin(-1) == low.masked_fill(~rows, -1).amax(-1)
        has_own_row = (rows & (places == first_keys[..., None])).any(-1)
        first_keys = first_keys.where(alone | has_own_row, 0)
        return Extent(rows, first_keys, places.expand(*rows.shape))
    if call.rows is not None:
        return Extent(rows, first_keys, places.expand(*rows.shape))
    length = keys - read.flip(-1).int().argmax(-1) - first_keys
    proportional = torch.arange(queries, device=key_places.device) * length[..., None] // queries
    return Extent(rows, first_keys, first_keys[..., None] + proportional)


def _by_entry(readable: Tensor, front: tuple[int, ...], heads: int) -> Tensor:
    """(entries, heads or 1, rows, keys) of a mask that broadcasts over `front`."""
    *_, rows, keys = readable.shape
    readable = readable[(None,) * (len(front) + 2 - readable.ndim)]
    if heads == 1:
        return readable.expand(*front, rows, keys).reshape(prod(front), 1, rows, keys)
    return readable.expand(*front[:-1], -1, rows, keys).reshape(prod(front[:-1]), -1, rows, keys)
