"""Scores that own parameters: one set for all heads, or one per head."""

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.constants import flag, whole
from regard.attention.scores.powers import KeptPowers, kept_powers
from regard.attention.scores.score import (
    Change,
    Dot,
    DotLike,
    Keys,
    PairScore,
    Queries,
    Score,
    Scores,
    Terms,
    unchanged,
)
from regard.attention.shapes import Shape, ShapeError

Heads = int | Sequence[int] | None
Owner = TypeVar("Owner", "General", "Additive")


def leading(heads: Heads) -> tuple[int, ...]:
    """The axes that come before a parameter's own: none, one per head, or (key heads, group)."""
    if heads is None:
        return ()
    if isinstance(heads, Sequence) and not isinstance(heads, str):
        return tuple(whole("heads", each) for each in heads)
    return (whole("heads", heads),)


def parameter(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(*shape))


def parameter_of(module: nn.Module, name: str, dtype: torch.dtype) -> Tensor:
    """A parameter in this precision. As an attribute, or converted to its own dtype, it takes ten times as long."""
    stored = module._parameters.get(name)
    weight: Tensor = getattr(module, name) if stored is None else stored  # perhaps it is computed
    return weight if weight.dtype == dtype else weight.to(dtype)


def glorot_(weight: Tensor) -> None:
    """Glorot and Bengio (2010), equation 16, on the last two axes."""
    bound = math.sqrt(6.0 / max(1, weight.shape[-1] + weight.shape[-2]))
    nn.init.uniform_(weight, -bound, bound)


def project(
    vectors: Float[Tensor, "*#batch length d_in"], weight: Float[Tensor, "*heads d_out d_in"]
) -> Float[Tensor, "... length d_out"]:
    """Every vector through the weight, or through its own head's weight."""
    if weight.ndim == 2:
        return nn.functional.linear(vectors, weight)
    return torch.einsum("...ld,...od->...lo", vectors, weight)


def check_width(score: str, side: str, vectors: Tensor, width: int) -> None:
    if vectors.shape[-1] != width:
        raise ShapeError(
            f"{side} is {vectors.shape[-1]} wide, this {score} was made with d_{side}={width}:"
            f" pass a {side} of shape [..., {vectors.shape[-2]}, {width}]"
        )


class General(nn.Module, DotLike, name="general"):
    """The bilinear score q^T W k (Luong et al. 2015, arXiv 1508.04025, equation 8, "general").

    Args:
        d_query: width of the query.
        d_key: width of the key; it may differ.
        heads: number of heads with a W of their own; the last batch axis counts them, or has size 1.
            A pair counts the last two, for grouped heads.

    Attributes:
        weight: W, of shape (d_query, d_key), or (heads, d_query, d_key).

    Example:
        >>> import torch
        >>> General(3, 5)(torch.ones(2, 3), torch.ones(4, 5)).shape
        torch.Size([2, 4])
    """

    widths = ("d_query", "d_key")
    is_linear = True

    def __init__(self, d_query: int, d_key: int, heads: Heads = None) -> None:
        super().__init__()
        self.d_query = d_query = whole("d_query", d_query, 0)
        self.d_key = d_key = whole("d_key", d_key, 0)
        self.weight = parameter(*leading(heads), d_query, d_key)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        glorot_(self.weight)

    @property
    def head_axes(self) -> Shape:
        return self.weight.shape[:-2]

    def factors(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, float]:
        """The query or the key through W, whichever has fewer rows."""
        queries, keys = query.shape, key.shape
        if queries[-1] != self.d_query or keys[-1] != self.d_key:
            check_width("General", "query", query, self.d_query)
            check_width("General", "key", key, self.d_key)
        weight = parameter_of(self, "weight", query.dtype)
        if queries[-2] > keys[-2]:
            return query, project(key, weight), 1.0
        if weight.ndim == 2:
            return query @ weight, key, 1.0
        return project(query, weight.mT), key, 1.0

    def with_parameters(self, change: Change) -> PairScore | None:
        return with_changed(self, change, 2) if type(self) is General else None

    def prepare(self, key: Keys) -> tuple[Score, Tensor]:
        if not unchanged(self, General, "factors"):
            return self, key
        check_width("General", "key", key, self.d_key)
        return Dot(), project(key, parameter_of(self, "weight", key.dtype))

    def extra_repr(self) -> str:
        return f"d_query={self.d_query}, d_key={self.d_key}"

    def cost_options(self) -> dict[str, Any]:
        return {"score": "general", "score_sets": self.weight[..., 0, 0].numel()}


class Additive(nn.Module, PairScore, name=("additive", "concat")):
    """The score v^T tanh(W_q q + W_k k + b).

    Source: Bahdanau et al. 2015, arXiv 1409.0473, appendix A.1.2; Luong et al. 2015, equation 8,
    "concat": W [q; k] is W_q q + W_k k. Our d_hidden is their n'.

    Args:
        d_query: width of the query.
        d_key: width of the key; it may differ.
        d_hidden: width of the hidden layer.
        bias: whether the hidden layer has a bias b.
        heads: number of heads with parameters of their own; the last batch axis counts them, or has size 1.
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

    widths = ("d_query", "d_key", "d_hidden")
    computation = ("__call__", "forward", "combine")
    is_additive = True
    bias: nn.Parameter | None

    def __init__(
        self, d_query: int, d_key: int, d_hidden: int, bias: bool = False, heads: Heads = None
    ) -> None:
        super().__init__()
        self.d_query, self.d_key = whole("d_query", d_query, 0), whole("d_key", d_key, 0)
        self.d_hidden = d_hidden = whole("d_hidden", d_hidden, 0)
        bias = flag("bias", bias)
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

    def query_features(self, query: Queries) -> Float[Tensor, "... queries d_hidden"]:
        """W_q q + b."""
        check_width("Additive", "query", query, self.d_query)
        features = project(query, parameter_of(self, "query_weight", query.dtype))
        return features if self.bias is None else features + self.bias.to(query.dtype)[..., None, :]

    def key_features(self, key: Keys) -> Float[Tensor, "... keys d_hidden"]:
        """W_k k: the part that a decoder needs only once a sentence."""
        check_width("Additive", "key", key, self.d_key)
        return project(key, parameter_of(self, "key_weight", key.dtype))

    def combine(
        self,
        query_features: Float[Tensor, "*#batch queries d_hidden"],
        key_features: Float[Tensor, "*#batch keys d_hidden"],
    ) -> Scores:
        """v^T tanh(query features + key features)."""
        hidden = (query_features.unsqueeze(-2) + key_features.unsqueeze(-3)).tanh_()
        weight = self.weight.to(hidden.dtype)
        if weight.ndim == 1:
            return hidden @ weight
        return torch.einsum("...qkn,...n->...qk", hidden, weight)

    def terms(self, query: Queries, key: Keys) -> Terms:
        return PreparedAdditive(self).terms(query, self.key_features(key))

    @property
    def head_axes(self) -> Shape:
        return self.weight.shape[:-1]

    def forward(self, query: Queries, key: Keys) -> Scores:
        return self.combine(self.query_features(query), self.key_features(key))

    @property
    def pair_width(self) -> int:
        return self.d_hidden

    def with_parameters(self, change: Change) -> PairScore | None:
        return with_changed(self, change, 1) if type(self) is Additive else None

    def prepare(self, key: Keys) -> tuple[Score, Tensor]:
        features = self.key_features(key)
        is_alone = type(self) is Additive and self.weight.ndim == 1
        return PreparedAdditive(self, kept=kept_powers(features) if is_alone else None), features

    def prepare_both(self, query: Queries, key: Keys) -> tuple[Score, Tensor, Tensor]:
        features = self.query_features(query), self.key_features(key)
        return PreparedAdditive(self, projected=True), *features

    def extra_repr(self) -> str:
        return f"d_query={self.d_query}, d_key={self.d_key}, d_hidden={self.d_hidden}"

    def cost_options(self) -> dict[str, Any] | None:
        """None with a bias, which the formulas do not have."""
        sets = self.weight[..., 0].numel()
        options = {"score": "additive", "score_sets": sets, "d_hidden": self.d_hidden}
        return options if self.bias is None else None


@dataclass(frozen=True)
class PreparedAdditive(PairScore):
    """An additive score whose keys are W_k k already, and its queries W_q q + b if `projected`.

    `kept` has the powers of the keys that it was made with, for single queries (see `powers`).
    """

    is_additive = True

    score: Additive
    projected: bool = False
    kept: KeptPowers | None = field(default=None, compare=False, repr=False, kw_only=True)

    @property
    def pair_width(self) -> int:
        return self.score.d_hidden

    @property
    def head_axes(self) -> Shape:
        return self.score.head_axes

    @property
    def weight(self) -> Tensor:
        return self.score.weight

    def is_itself(self) -> bool:
        return True

    def with_parameters(self, change: Change) -> PairScore | None:
        if type(self) is not PreparedAdditive or type(self.score) is not Additive:
            return None
        used = ("weight",) if self.projected else ("query_weight", "weight", "bias")
        return PreparedAdditive(with_changed(self.score, change, 1, used), self.projected)

    def query_features(self, query: Tensor) -> Tensor:
        return query if self.projected else self.score.query_features(query)

    def key_features(self, key: Tensor) -> Tensor:
        return key

    def terms(self, query: Tensor, key: Tensor) -> Terms:
        query = self.query_features(query)
        return Terms("additive", self.weight * torch.tanh(query + key), query, key)

    def __call__(self, query: Tensor, key: Tensor, /) -> Tensor:
        features, powers = self.query_features(query), self.kept
        if powers is not None and powers.serves(key):
            scores = powers.scores(features, self.weight.to(key.dtype))
            if scores is not None:
                return scores
        return self.score.combine(features, key)


def with_changed(
    score: Owner, change: Change, axes: int, used: tuple[str, ...] | None = None
) -> Owner:
    """The same score with other parameters, where `axes` axes of its weight are behind those of heads."""
    heads = score.weight.ndim - axes
    twin = copy(score)
    twin.__dict__["_parameters"] = {
        name: parameter
        if parameter is None or (used and name not in used)
        else change(parameter, parameter.ndim - heads)
        for name, parameter in score._parameters.items()
    }
    return twin


Concat = Additive
