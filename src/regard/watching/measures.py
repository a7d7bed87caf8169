"""What each head reads, in numbers. Each is a mean over the queries that read any key, without padding.

entropy: in nats.
distance: between the positions of a query and of the keys it reads.
sink: the weight of the first key (Xiao et al. 2024, arXiv 2309.17453); padding before it is no key.
diagonal: the weight of the key at the query's position; in cross attention at the proportional
    position among the keys that are no padding.
previous: the weight of the key before that.
copy: the weight of other keys with the query's token.
induction: the weight of the keys after those (Olsson et al. 2022, arXiv 2209.11895).
prefix: the same for keys up to the query's own, as a mean over the queries whose token occurred
    before: the prefix matching score of that paper; nan if there is none.
"""

from math import prod
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn import functional as F

from regard.attention.looks import Look
from regard.watching.extents import Extent

BLOCK = 1 << 22  # weights computed at a time


class TokenIds(NamedTuple):
    """The ids of the tokens of an attention, by batch entry."""

    queries: Int[Tensor, "entries queries"]
    keys: Int[Tensor, "entries keys"]


def own_places(kind: str, queries: int, keys: int) -> Int[Tensor, "queries"]:
    """The position of each query among the keys, of a whole sequence; proportional in cross attention.

    >>> own_places("causal", 2, 5).tolist(), own_places("cross", 2, 5).tolist()
    ([3, 4], [0, 2])
    """
    queries_range = torch.arange(queries)
    if kind == "cross" or queries > keys:
        return queries_range * keys // max(1, queries)
    return queries_range + keys - queries


@torch.no_grad()
def measures(
    look: Look,
    kind: str,
    heads: int,
    places: Int[Tensor, "queries"] | None = None,
    tokens: TokenIds | None = None,
    rows: Int[Tensor, "rows"] | None = None,
    extent: Extent | None = None,
) -> dict[str, Tensor]:
    """The measures by name, each of shape (heads,); the last three where the tokens are known.

    Args:
        look: (*entries, heads, queries, keys). The weights are computed in blocks of rows.
        kind: "self", "causal" or "cross"; cross attention has no key of the query's own.
        heads: how many heads the look has.
        places: the position of each query among the keys; those of `own_places` by default.
        tokens: their ids, for each batch entry.
        rows: a sample of the queries; None for all.
        extent: the queries and keys that are no padding, as from `extents.extent`; None for all.
    """
    queries, keys = look.shape[-2:]
    entries = prod(look.shape[:-2]) // max(1, heads)
    key_places = own_places(kind, queries, keys) if places is None else places
    key_places = key_places.to(look.device)[None, None]
    columns = torch.arange(keys, device=look.device)
    first_keys = key_places.new_zeros(1, 1)
    if extent is not None:
        first_keys, key_places = extent.first_keys, extent.places
    zero = torch.zeros(heads, dtype=torch.float64, device=look.device)
    names = ["entropy", "distance", "sink", "diagonal", "previous"]
    sums = dict.fromkeys(names + ["copy", "induction", "prefix"] * (tokens is not None), zero)
    # Queries that read any key; of these, those whose token occurred before.
    readers = repeats = zero
    height = max(1, BLOCK // max(1, prod(look.shape[:-2]) * keys))
    rows = torch.arange(queries if keys else 0) if rows is None else rows
    for block in rows.to(look.device).split(height) if len(rows) else ():
        weights = look.weights(rows=block).reshape(entries, heads, len(block), keys)
        if extent is not None:
            weights = weights * extent.rows[..., block, None]
        place = key_places[..., block, None]
        reads = weights.sum(-1) > 0.5
        readers = readers + reads.sum((0, 2))
        terms = [torch.special.entr(weights), weights * (columns - place).abs()]
        terms += [_at(weights, each) for each in (first_keys[..., None, None], place, place - 1)]
        if tokens is not None:
            same = (tokens.queries[:, block, None] == tokens.keys[:, None])[:, None]
            if kind != "cross":
                same = same & (columns != place)
            following = F.pad(same[..., :-1], (1, 0))
            earlier = following if kind == "cross" else following & (columns <= place)
            terms += [weights * each for each in (same, following, earlier)]
            repeats = repeats + (reads & earlier.any(-1)).sum((0, 2))
        for name, values in zip(sums, terms, strict=True):
            sums[name] = sums[name] + values.sum((0, 2, 3))
    means = {name: total / readers.clamp(min=1) for name, total in sums.items()}
    if tokens is not None:
        means["prefix"] = sums["prefix"] / repeats
    return means


def _at(weights: Tensor, place: Tensor) -> Tensor:
    """The weight of one key for each query; 0 for positions outside."""
    inside = (place >= 0) & (place < weights.shape[-1])
    index = place.clamp(0, weights.shape[-1] - 1).expand(*weights.shape[:-1], 1)
    return weights.gather(-1, index) * inside
