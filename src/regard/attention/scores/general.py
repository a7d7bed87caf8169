"""The bilinear score."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.scores.dot import DotLike
from regard.attention.scores.parameters import (
    Heads,
    check_width,
    glorot_,
    leading,
    parameter,
    project,
)


class General(nn.Module, DotLike):
    """The bilinear score q^T W k (Luong et al. 2015, arXiv 1508.04025, equation 8, "general").

    Args:
        d_query: width of the query.
        d_key: width of the key; it may differ.
        heads: number of heads with a W of their own; the last batch axis counts them.
            A pair counts the last two, for grouped heads.

    Attributes:
        weight: W, of shape (d_query, d_key), or (heads, d_query, d_key).

    Example:
        >>> import torch
        >>> General(3, 5)(torch.ones(2, 3), torch.ones(4, 5)).shape
        torch.Size([2, 4])
    """

    def __init__(self, d_query: int, d_key: int, heads: Heads = None) -> None:
        super().__init__()
        self.d_query, self.d_key = d_query, d_key
        self.weight = parameter(*leading(heads), d_query, d_key)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        glorot_(self.weight)

    def factors(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, float]:
        """The query or the key through W, whichever has fewer rows."""
        check_width("General", "query", query, self.d_query)
        check_width("General", "key", key, self.d_key)
        if query.shape[-2] <= key.shape[-2]:
            return project(query, self.weight.mT), key, 1.0
        return query, project(key, self.weight), 1.0

    def forward(
        self,
        query: Float[Tensor, "*#batch queries d_query"],
        key: Float[Tensor, "*#batch keys d_key"],
    ) -> Float[Tensor, "... queries keys"]:
        return DotLike.__call__(self, query, key)

    def extra_repr(self) -> str:
        return f"d_query={self.d_query}, d_key={self.d_key}"
