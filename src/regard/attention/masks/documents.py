"""The mask of several documents packed into one row."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Int
from torch import Tensor

from regard.attention.masks.mask import Mask, lead, pick
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


def _check(name: str, ids: Tensor, length: int) -> None:
    if ids.shape[-1] not in (1, length):
        raise ShapeError(
            f"{name} covers {ids.shape[-1]} positions, there are {length}:"
            f" pass {name} of shape [..., {length}]"
        )


def documents(
    query_ids: Int[Tensor, "*leading queries"], key_ids: Int[Tensor, "*leading keys"] | None = None
) -> Mask:
    """A query reads the keys of its own document, for documents packed into one row.

    Args:
        query_ids: the document of each query, (*leading batch axes, queries).
        key_ids: the document of each key, (*leading batch axes, keys); the queries' by default.

    Example:
        >>> import torch
        >>> documents(torch.tensor([0, 0, 1])).dense((), 3, 3).int()
        tensor([[1, 1, 0],
                [1, 1, 0],
                [0, 0, 1]], dtype=torch.int32)
    """
    return Documents(query_ids, query_ids if key_ids is None else key_ids)
