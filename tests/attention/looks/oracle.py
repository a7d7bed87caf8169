"""The answers of a look from its dense weights, in float64, as the definitions have them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard.attention.kernels.reference import weigh
from regard.attention.kernels.request import ask
from regard.attention.looks.scored import masked_scores
from regard.attention.normalisers import Softmax


class Dense:
    """Every answer of the attention that these arguments ask for."""

    def __init__(self, weights: Tensor, readable: Tensor, scores: Tensor | None = None) -> None:
        self.weights, self.readable, self.scores = weights, readable, scores
        queries, keys = weights.shape[-2:]
        self.offsets = torch.arange(keys) - torch.arange(queries)[:, None]

    @classmethod
    def of(cls, arguments: dict[str, Any]) -> Dense:
        request = ask(arguments["query"], arguments["key"], **options(arguments))
        shape = (*request.batch(), request.queries, request.keys)
        readable = request.readable()
        if readable is None:
            readable = torch.ones(shape, dtype=torch.bool)
        scores = None
        if type(request.normaliser) is Softmax:
            scores = masked_scores(request, torch.arange(request.queries)).expand(shape)
        return cls(weigh(request).expand(shape), readable.expand(shape), scores)

    def log_normaliser(self) -> Tensor:
        assert self.scores is not None
        return torch.logsumexp(self.scores, -1)

    def entropy(self) -> Tensor:
        return -torch.xlogy(self.weights, self.weights).sum(-1)

    def received(self, rows: Any = slice(None), weights: Tensor | None = None) -> Tensor:
        chosen_weights = self.weights[..., rows, :]
        return (chosen_weights if weights is None else weights[..., None] * chosen_weights).sum(-2)

    def distance(self, signed: bool) -> Tensor:
        offsets = self.offsets if signed else self.offsets.abs()
        return (self.weights * offsets).sum(-1)

    def ranked(self, count: int) -> Tensor:
        """The heaviest weights, those of keys that may be read."""
        ranked_weights = torch.where(self.readable, self.weights, -torch.inf)
        ranked_weights = torch.nn.functional.pad(ranked_weights, (0, count), value=-torch.inf)
        best = ranked_weights.sort(-1, descending=True).values[..., :count]
        return torch.where(best == -torch.inf, 0.0, best)

    def map(self, height: int, width: int, reduce: str) -> Tensor:
        queries, keys = self.weights.shape[-2:]
        pool = {"mean": lambda x: x.mean((-2, -1)), "max": lambda x: x.amax((-2, -1))}[reduce]
        return torch.stack(
            [
                torch.stack(
                    [
                        pool(self.weights[..., bin_of(i, height, queries), bin_of(j, width, keys)])
                        for j in range(width)
                    ],
                    -1,
                )
                for i in range(height)
            ],
            -2,
        )


def bin_of(i: int, count: int, length: int) -> slice:
    start = i * length // count
    return slice(start, max(start + 1, (i + 1) * length // count))


def options(arguments: dict[str, Any]) -> dict[str, Any]:
    return {n: arguments.get(n) for n in ("score", "bias", "mask", "normaliser")}


def without_value(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"query": arguments["query"], "key": arguments["key"], **options(arguments)}
