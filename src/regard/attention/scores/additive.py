"""The additive score, of a network with one hidden layer."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.scores.parameters import (
    Heads,
    check_width,
    glorot_,
    leading,
    parameter,
    project,
)


class Additive(nn.Module):
    """The score v^T tanh(W_q q + W_k k + b).

    Source: Bahdanau et al. 2015, arXiv 1409.0473, appendix A.1.2; Luong et al. 2015, equation 8,
    "concat": W [q; k] is W_q q + W_k k. Our d_hidden is their n'.

    Args:
        d_query: width of the query.
        d_key: width of the key; it may differ.
        d_hidden: width of the hidden layer.
        bias: whether the hidden layer has a bias b.
        heads: number of heads with parameters of their own; the last batch axis counts them.
            A pair counts the last two, for grouped heads.

    Attributes:
        query_weight: W_q, of shape (d_hidden, d_query).
        key_weight: W_k, of shape (d_hidden, d_key).
        weight: v, of shape (d_hidden).
        bias: b, of shape (d_hidden), or None. With heads, each has the heads in front.

    Example:
        >>> import torch
        >>> Additive(3, 5, 8)(torch.ones(2, 3), torch.ones(4, 5)).shape
        torch.Size([2, 4])
    """

    bias: nn.Parameter | None

    def __init__(
        self, d_query: int, d_key: int, d_hidden: int, bias: bool = False, heads: Heads = None
    ) -> None:
        super().__init__()
        self.d_query, self.d_key, self.d_hidden = d_query, d_key, d_hidden
        front = leading(heads)
        self.query_weight = parameter(*front, d_hidden, d_query)
        self.key_weight = parameter(*front, d_hidden, d_key)
        self.weight = parameter(*front, d_hidden)
        self.bias = parameter(*front, d_hidden) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        glorot_(self.query_weight)
        glorot_(self.key_weight)
        bound = max(1, self.d_hidden) ** -0.5
        nn.init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def query_features(
        self, query: Float[Tensor, "*#batch queries d_query"]
    ) -> Float[Tensor, "... queries d_hidden"]:
        """W_q q + b."""
        check_width("Additive", "query", query, self.d_query)
        features = project(query, self.query_weight)
        return features if self.bias is None else features + self.bias.to(query.dtype)[..., None, :]

    def key_features(
        self, key: Float[Tensor, "*#batch keys d_key"]
    ) -> Float[Tensor, "... keys d_hidden"]:
        """W_k k: the part that a decoder needs only once a sentence."""
        check_width("Additive", "key", key, self.d_key)
        return project(key, self.key_weight)

    def combine(
        self,
        query_features: Float[Tensor, "*#batch queries d_hidden"],
        key_features: Float[Tensor, "*#batch keys d_hidden"],
    ) -> Float[Tensor, "... queries keys"]:
        """v^T tanh(query features + key features)."""
        hidden = torch.tanh(query_features.unsqueeze(-2) + key_features.unsqueeze(-3))
        weight = self.weight.to(hidden.dtype)
        if weight.ndim == 1:
            return hidden @ weight
        return torch.einsum("...qkn,...n->...qk", hidden, weight)

    def forward(
        self,
        query: Float[Tensor, "*#batch queries d_query"],
        key: Float[Tensor, "*#batch keys d_key"],
    ) -> Float[Tensor, "... queries keys"]:
        return self.combine(self.query_features(query), self.key_features(key))

    def extra_repr(self) -> str:
        return f"d_query={self.d_query}, d_key={self.d_key}, d_hidden={self.d_hidden}"


Concat = Additive
