"""`regard.routes(model, inputs, target)`: the ways from the tokens to a prediction, by layer, head and token."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.looks import Look
from regard.watching.errors import WatchError
from regard.watching.gradients import output_gradients
from regard.watching.inputs import ModelInputs
from regard.watching.measures import BLOCK
from regard.watching.paths import Layers
from regard.watching.table import html
from regard.watching.units import attentions_of
from regard.watching.watch import watch

PLOTTER = "regard.viewing.grid"  # imported by name: the library works without pictures


def routes(
    model: nn.Module, inputs: Any, target: Callable[[Any], Any] | int = -1, *, layers: Layers = None
) -> Routes | Rollout:
    """Which ways carry a prediction: flow by gradients for a metric, or attention rollout for a position.

    For a metric, an edge from a key to a query in a head has the flow weight x value x gradient of the
    metric at the output of the head, with the attention weights frozen: what the metric would lose
    without the edge, to first order. For a position it is the rollout of Abnar and Zuidema (2020,
    arXiv 2005.00928): the product over layers of (mean of the heads + identity) / 2.

    Args:
        model: any module that can be watched, in evaluation mode, whose attentions run once in a pass.
        inputs: a tensor, a tuple, a mapping of arguments, or a function that runs the model.
        target: a metric, as for `regard.effects`, or the number of a query.
        layers: the attentions that count, as for `regard.watch`; None for all.

    Raises:
        WatchError: no attention was seen, the metric has no gradient, or a rollout goes over
            attentions of several lengths.

    Example:
        >>> import torch, regard
        >>> layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
        >>> regard.routes(layer, torch.randn(1, 5, 8), -1).tokens().shape
        torch.Size([1, 5])
    """
    if isinstance(target, int) and not isinstance(target, bool):
        return _rollout(model, ModelInputs(inputs), target, layers)
    if not callable(target):
        raise TypeError(f"target is {target!r}: pass a metric, or the number of a query")
    backward = output_gradients(model, ModelInputs(inputs), target, layers, frozen=True)
    attentions = attentions_of(backward.seen)
    with torch.no_grad():
        flows = {
            each.name: backward.weights(each.name) * backward.of_weights(each.name)
            for each in attentions
        }
    return Routes(flows)


class Edge(NamedTuple):
    """What a head carries from a key to a query."""

    name: str
    head: int
    query: int
    key: int
    flow: float


@dataclass(frozen=True, eq=False)
class Routes:
    """The flow through each edge of each head.

    Attributes:
        flows (dict[str, Tensor]): ``(*batch, heads, queries, keys)`` by the name of the attention.
    """

    flows: dict[str, Float[Tensor, "*batch heads queries keys"]]

    of = "heads"
    heading = "flow of each head"

    def array(self) -> Float[Tensor, "layers heads"]:
        """The flow through each head, over all its edges and batch entries; nan where there is none."""
        sums = [each.sum((*range(each.ndim - 3), -2, -1)) for each in self.flows.values()]
        array = torch.full(
            (len(sums), max(map(len, sums), default=0)), torch.nan, dtype=torch.float64
        )
        for row, flow in zip(array, sums, strict=True):
            row[: len(flow)] = flow
        return array

    def tokens(self) -> dict[str, Float[Tensor, "*batch keys"]]:
        """What all heads of an attention carry from each token, by the name of the attention."""
        return {name: flow.sum((-3, -2)) for name, flow in self.flows.items()}

    def top(self, count: int = 10, entry: int = 0) -> list[Edge]:
        """The edges of a batch entry with the largest flow, above or below 0."""
        edges = []
        for name, flow in self.flows.items():
            of_entry = flow.flatten(0, -4)[entry]
            places = of_entry.abs().flatten().topk(min(count, of_entry.numel())).indices
            for place in places.tolist():
                head, query, key = (
                    int(each) for each in torch.unravel_index(torch.tensor(place), of_entry.shape)
                )
                edges.append(Edge(name, head, query, key, float(of_entry[head, query, key])))
        return sorted(edges, key=lambda edge: -abs(edge.flow))[:count]

    def plot(self, **options: Any) -> Any:
        """A picture of layers × heads, as a figure of matplotlib's; options as for `EffectTable.plot`."""
        return import_module(PLOTTER).plot(self, **options)

    def __str__(self) -> str:
        return "\n".join(
            f"{name:24} head {head:3} token {key:5} to {query:5} {flow:+.4f}"
            for name, head, query, key, flow in self.top()
        )

    def _repr_html_(self) -> str:
        rows = [[*map(str, edge[:-1]), f"{edge.flow:+.4f}"] for edge in self.top()]
        return html(list(Edge._fields), rows)


@dataclass(frozen=True, eq=False)
class Rollout:
    """Attention rollout: which tokens a query has read through all layers, if heads only copied.

    Attributes:
        matrix (Tensor): ``(*batch, queries, keys)``, the product of all layers.
        query: the number of the query that was asked for.
    """

    matrix: Float[Tensor, "*batch queries keys"]
    query: int

    def tokens(self) -> Float[Tensor, "*batch keys"]:
        """The share of each token in the query; the sum is 1."""
        return self.matrix[..., self.query, :]

    def _repr_html_(self) -> str:
        shares = self.tokens().flatten(0, -2)[0]
        return html(
            ["token", "share"], [[str(at), f"{share:.4f}"] for at, share in enumerate(shares)]
        )


def _rollout(model: nn.Module, inputs: ModelInputs, query: int, layers: Layers) -> Rollout:
    with torch.no_grad(), watch(model, layers=layers) as attentions:
        inputs.run(model)
    matrix = rollout({name: attentions[name] for name in attentions})
    if matrix is None or not -matrix.shape[-2] <= query < matrix.shape[-2]:
        raise WatchError(
            f"target is {query}: the attentions have {0 if matrix is None else matrix.shape[-2]} queries"
        )
    return Rollout(matrix, query)


@torch.no_grad()
def rollout(
    looks: Mapping[str, Look], headed: bool | None = None
) -> Float[Tensor, "*batch queries keys"] | None:
    """The product over layers of (mean of the heads + identity) / 2; None of no look.

    Args:
        looks: (*batch, [heads,] queries, keys) of each layer by its name, the lowest first.
        headed: whether they have heads; their captions say it by default.

    Raises:
        WatchError: they are of sequences of several lengths.
    """
    matrix: Tensor | None = None
    for name, look in looks.items():
        queries, keys = look.shape[-2:]
        if queries != keys or (matrix is not None and matrix.shape[-1] != keys):
            raise WatchError(
                f"{name} has {queries} queries and {keys} keys: a rollout goes over self-attentions of one"
                ' sequence, such as layers="encoder.*"'
            )
        step = _step(_mean(look, look.caption.headed if headed is None else headed).weights())
        matrix = step if matrix is None else step @ matrix
    return matrix


@torch.no_grad()
def rollout_row(
    looks: Mapping[str, Look], query: int, check: Callable[[], None] = lambda: None
) -> Float[Tensor, "keys"]:
    """One row of `rollout`, of looks at one batch entry, without any matrix: for texts of any length.

    Args:
        looks: ([heads,] queries, keys) of each layer, the lowest first.
        query: the number of the row.
        check: called between blocks of rows; it may raise to end the computation.
    """
    row = torch.zeros(0)
    for look in reversed(list(looks.values())):
        queries, keys = look.shape[-2:]
        if not len(row):
            row = torch.zeros(queries, device=look.device)
            row[query] = 1.0
        mean, through = _mean(look, len(look.shape) > 2), torch.zeros(keys, device=look.device)
        height = max(1, BLOCK // (keys * (look.shape[-3] if len(look.shape) > 2 else 1)))
        for rows in row.nonzero().flatten().split(height):
            check()
            step = mean.weights(rows=rows)
            step[torch.arange(len(rows)), rows] += 1.0
            through += row[rows] @ (step / step.sum(-1, keepdim=True))
        row = through
    return row


def _mean(look: Look, headed: bool) -> Look:
    return look.mean_heads() if headed else look


def _step(mean: Tensor) -> Tensor:
    """(weights + identity) / their sum, which is 2 but for a query that may read nothing."""
    step = mean + torch.eye(mean.shape[-1]).to(mean)
    return step / step.sum(-1, keepdim=True)
