"""Masks and scores of other projects as those of Regard; in masks True = may be read."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.attention.masks import Mask, MaskLike, as_mask, causal
from regard.attention.masks.positions import Band
from regard.attention.shapes import Frame

MASKING = 0.25  # of the lowest finite number: a smaller bias masks its key
LARGEST = 1 << 26  # largest number of pairs for which a mask is computed to classify it


@dataclass(frozen=True, eq=False)
class SelectedQueries(Mask):
    """Another mask, restricted to some of its queries."""

    mask: Mask
    rows: Tensor
    queries: int

    def window(self, rows: Tensor, columns: Tensor, frame: Frame) -> Tensor:
        all_queries = frame._replace(queries=self.queries)
        return self.mask.window(self.rows.to(rows.device)[rows], columns, all_queries)

    def tensors(self) -> list[Tensor] | None:
        inner = self.mask.tensors()
        return None if inner is None else [*inner, self.rows]


@dataclass(frozen=True, eq=False)
class Ragged(Mask):
    """Sequences of several lengths, padded: no query of the padding reads, and no key of it is read."""

    queries: Tensor  # the lengths by batch entry
    keys: Tensor

    def window(self, rows: Tensor, columns: Tensor, frame: Frame) -> Tensor:
        entries = (-1, *(1,) * (len(frame.batch) + 1))
        queries, keys = (each.to(rows.device).view(entries) for each in (self.queries, self.keys))
        return (rows[:, None] < queries) & (columns < keys)

    def tensors(self) -> list[Tensor]:
        return [self.queries, self.keys]


def padded(nested: Tensor) -> tuple[Tensor, Tensor]:
    """The sequences of a nested tensor (batch, ..., length, width), padded with 0, and their lengths."""
    lengths = [entry.shape[-2] for entry in nested.unbind()]
    return torch.nested.to_padded_tensor(nested, 0.0), torch.tensor(lengths, device=nested.device)


def is_masking(bias: Tensor) -> Tensor:
    """Where a bias is so low that it masks its key."""
    return bias <= MASKING * torch.finfo(bias.dtype).min


def mask_or_bias(bias: Tensor) -> tuple[MaskLike | None, Tensor | None]:
    """Split an additive mask into (mask, None), or (None, bias) if it is not only a mask.

    It is only a mask if its values are 0 or close to the lowest finite number. It stays a bias if
    some row is masked completely by finite numbers, because a softmax then reads it uniformly.
    """
    masked = is_masking(bias)
    if bool(((bias == 0) | masked).all()):
        readable = ~masked
        if bool(readable.any(-1).all()) or bool((bias[masked] == -torch.inf).all()):
            return narrowed(readable), None
    return None, bias


def narrowed(mask: Tensor) -> MaskLike | None:
    """None for a mask of all True, a causal mask for a triangle, else the mask itself."""
    if bool(mask.all()):
        return None
    queries, keys = mask.shape[-2:]
    if queries > 1:
        for align in ("start", "end") if queries != keys else ("end",):
            rule = causal(align=align)
            if bool((mask == rule.dense((), queries, keys, mask.device)).all()):
                return rule
    return mask


def looks_back(mask: MaskLike | None, queries: int, keys: int) -> bool:
    """Whether there are later keys and no query may read one that comes after it."""
    if mask is None or queries < 2:
        return False
    if isinstance(mask, Band):
        return mask.after is not None and mask.after <= 0
    if isinstance(mask, SelectedQueries):
        return looks_back(mask.mask, mask.queries, keys)
    if queries * keys > LARGEST:
        return False
    device = mask.device if isinstance(mask, Tensor) else torch.device("cpu")
    frame = Frame((1, 1), queries, keys, device)
    at, of = (torch.arange(n, device=frame.device) for n in (queries, keys))
    open_ = as_mask(mask).window(at, of, frame)
    for align in ("start", "end"):
        later = ~causal(align=align).dense((), queries, keys, frame.device)
        if bool(later.any()) and not bool((open_ & later).any()):
            return True
    return False


@dataclass(frozen=True, eq=False)
class FlexMask(Mask):
    """flex_attention's mask_mod: a function of one batch entry, head, query and key."""

    function: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]

    def window(self, rows: Tensor, columns: Tensor, frame: Frame) -> Tensor:
        entries, heads = (torch.arange(n, device=rows.device) for n in frame.batch[:2])
        if not (len(rows) and len(columns)):
            return rows.new_empty(*frame.batch[:2], len(rows), len(columns), dtype=torch.bool)
        return over_all(self.function)(entries, heads, rows, columns)


@dataclass(frozen=True)
class FlexScore:
    """score_mod(scale q . k, entry, head, query, key); Dong et al. 2024, arXiv 2412.05496, section 3.

    A score receives vectors without positions. So `with_positions` appends the position to each
    query and key as one more number.
    """

    function: Callable[..., Tensor]
    scale: float

    def __call__(self, query: Tensor, key: Tensor, /) -> Tensor:
        query, rows = query[..., :-1], query[..., -1].reshape(-1, query.shape[-2])[0].long()
        key, columns = key[..., :-1], key[..., -1].reshape(-1, key.shape[-2])[0].long()
        scores = (query * self.scale) @ key.mT
        entries, heads = (torch.arange(n, device=scores.device) for n in scores.shape[:2])
        return over_all(self.function, scored=True)(scores, entries, heads, rows, columns)


def with_positions(vectors: Tensor, positions: Tensor | None = None) -> Tensor:
    """Append each vector's position, in float32 at least, which is exact for positions to 2^24."""
    wide = torch.promote_types(vectors.dtype, torch.float32)
    where = torch.arange(vectors.shape[-2]) if positions is None else positions
    column = where.to(vectors.device, wide).unsqueeze(-1)
    return torch.cat([vectors.to(wide), column.expand(*vectors.shape[:-1], 1)], -1)


def over_all(function: Callable[..., Tensor], scored: bool = False) -> Callable[..., Tensor]:
    """Vectorise a function of (score,) entry, head, query and key over all of them."""
    score_axes = (0,) if scored else ()
    for axis in (3, 2, 1, 0):
        axes = [0 if each == axis else None for each in range(4)]
        function = torch.vmap(function, in_dims=(*score_axes, *axes))
    return function
