"""The mask of several documents packed into one row."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from regard.attention.masks.mask import Mask, Reach, check_whole, lead, pick
from regard.attention.shapes import Frame, ShapeError


@dataclass(frozen=True, eq=False)
class Documents(Mask):
    """A query reads the keys of its own document."""

    query_ids: Tensor
    key_ids: Tensor

    def window(self, rows: Tensor, columns: Tensor, frame: Frame) -> Tensor:
        _check("query_ids", self.query_ids, frame.queries)
        _check("key_ids", self.key_ids, frame.keys)
        asking = lead(self.query_ids.to(rows.device), 1, frame, "query_ids")
        stored = lead(self.key_ids.to(rows.device), 1, frame, "key_ids")
        return pick(asking, -1, rows).unsqueeze(-1) == pick(stored, -1, columns).unsqueeze(-2)

    def reach(self, rows: range, frame: Frame) -> Reach:
        """From the first to the last key of these queries' documents."""
        asking, stored = self.query_ids, self.key_ids
        if stored.shape[-1] != frame.keys or asking.shape[-1] != frame.queries:
            return super().reach(rows, frame)
        asked = asking[..., rows.start : rows.stop]
        own = torch.isin(stored, asked.unique()).reshape(-1, frame.keys).any(0).nonzero()
        if not own.numel():
            return Reach(range(0), range(0))
        some = range(int(own[0]), int(own[-1]) + 1)
        only = asked.reshape(-1)[0]
        alone = bool((asked == only).all() and (stored[..., some.start : some.stop] == only).all())
        return Reach(some, some if alone else range(0))


def _check(name: str, ids: Tensor, length: int) -> None:
    if ids.shape[-1] not in (1, length):
        raise ShapeError(
            f"{name} covers {ids.shape[-1]} positions, there are {length}:"
            f" pass {name} of shape [..., {length}]"
        )


def documents(
    query_ids: Int[Tensor, "*batch queries"], key_ids: Int[Tensor, "*other keys"] | None = None
) -> Mask:
    """A query reads the keys of its own document, for documents packed into one row.

    Args:
        query_ids: the document of each query, (*leading batch axes, queries).
        key_ids: the document of each key, (*leading batch axes, keys); the queries' by default.

    Raises:
        TypeError: ids that are not whole numbers.

    Example:
        >>> import torch
        >>> documents(torch.tensor([0, 0, 1])).dense((), 3, 3).int()
        tensor([[1, 1, 0],
                [1, 1, 0],
                [0, 0, 1]], dtype=torch.int32)
    """
    key_ids = query_ids if key_ids is None else key_ids
    check_whole("query_ids", query_ids)
    check_whole("key_ids", key_ids)
    return Documents(query_ids, key_ids)
