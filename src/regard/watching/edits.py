"""Edits of attention: what `regard.change` does to the heads of an attention.

An edit of weights is a function of weights (*batch, heads, queries, keys) and of the numbers of those queries. It is
exact: the model reads its values with the edited weights. An edit of outputs is one of what the heads read,
(*batch, heads, queries, d_value), before the output projection.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from operator import index
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from regard.watching.errors import WatchError
from regard.watching.seen import Seen

__all__ = ["Cell", "Edit", "From", "Hard", "Mean", "Scale", "Temperature"]

Heads = int | Iterable[int] | None
Plane = Literal["outputs", "weights"]


@dataclass(frozen=True)
class Edit(ABC):
    """An edit of some heads, queries and keys: each a number, several, or None for all.

    A query's number counts the queries of the attention since the change was opened.
    """

    heads: Heads = field(default=None, kw_only=True)
    queries: Heads = field(default=None, kw_only=True)
    keys: Heads = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        # They may be iterators, and an edit is called many times.
        for name in ("heads", "queries", "keys"):
            numbers = getattr(self, name)
            if isinstance(numbers, Iterable):
                object.__setattr__(self, name, tuple(map(index, numbers)))

    @property
    def edits_outputs(self) -> bool:
        """Whether it edits the outputs of heads, and not their weights."""
        return False

    @property
    def is_of_readings(self) -> bool:
        """Whether the same edit of outputs in place of weights gives the same reading."""
        return self.edits_outputs

    def bound(self, names: Sequence[str]) -> Edit:
        """The edit for an attention that has these names."""
        return self

    @abstractmethod
    def of(
        self, weights: Float[Tensor, "*batch heads queries keys"], start: int
    ) -> Float[Tensor, "*batch heads queries keys"]:
        """The edited weights of heads that are edited; `start` is the number of the first query."""

    def __call__(self, weights: Tensor, start: int = 0) -> Tensor:
        """The weights, or the outputs, with the chosen heads, queries and keys edited.

        Raises:
            WatchError: there is no head of such a number.
        """
        edited = self._of_heads(weights, start)
        if self.queries is not None:
            rows = torch.arange(start, start + weights.shape[-2])
            edited = torch.where(_among(rows, self.queries, weights)[:, None], edited, weights)
        if self.keys is not None:
            columns = torch.arange(weights.shape[-1])
            edited = torch.where(_among(columns, self.keys, weights), edited, weights)
        return edited

    def _of_heads(self, weights: Tensor, start: int) -> Tensor:
        if self.heads is None:
            return self.of(weights, start)
        count = weights.shape[-3]
        heads = self.heads if isinstance(self.heads, Iterable) else (self.heads,)
        numbers = torch.tensor(list(heads), dtype=torch.long)
        if len(numbers) and not (-count <= int(numbers.min()) and int(numbers.max()) < count):
            raise WatchError(f"heads is {self.heads}: this attention has heads 0 to {count - 1}")
        numbers = (numbers % count).to(weights.device)
        edited = self._of_some(weights, numbers, start)
        return weights.index_copy(-3, numbers, edited)

    def _of_some(self, weights: Tensor, numbers: Tensor, start: int) -> Tensor:
        return self.of(weights.index_select(-3, numbers), start)


def _among(numbers: Tensor, several: Heads, like: Tensor) -> Tensor:
    """Which of these numbers are among several; negative ones count from the end."""
    members = torch.tensor(several if isinstance(several, tuple) else [several], dtype=torch.long)
    members = torch.where(members < 0, members + numbers[-1:] + 1, members)
    return torch.isin(numbers, members).to(like.device)


@dataclass(frozen=True)
class Scale(Edit):
    """Multiply the reading of the heads by a factor; 0 switches them off.

    Example:
        >>> import torch
        >>> Scale(0.5)(torch.eye(2)[None])
        tensor([[[0.5000, 0.0000],
                 [0.0000, 0.5000]]])
    """

    factor: float

    @property
    def is_of_readings(self) -> bool:
        return self.keys is None

    def of(self, weights: Tensor, start: int) -> Tensor:
        return weights * self.factor


@dataclass(frozen=True)
class Temperature(Edit):
    """Weights to the power of 1 / temperature, so that rows keep their sum: below 1 sharper, above 1 flatter.

    For a softmax this is the softmax of the scores over the temperature.

    Example:
        >>> import torch
        >>> Temperature(0.5)(torch.tensor([[[0.75, 0.25]]]))
        tensor([[[0.9000, 0.1000]]])
    """

    temperature: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.temperature > 0:
            raise ValueError(f"temperature is {self.temperature}: pass a number above 0")

    def of(self, weights: Tensor, start: int) -> Tensor:
        power = weights.clamp(min=0).log().div(self.temperature).softmax(-1)
        return torch.nan_to_num(power) * weights.sum(-1, keepdim=True)


@dataclass(frozen=True)
class Hard(Edit):
    """The key with the largest weight alone, the first of equal ones.

    Example:
        >>> import torch
        >>> Hard()(torch.tensor([[[0.4, 0.6]]]))
        tensor([[[0., 1.]]])
    """

    def of(self, weights: Tensor, start: int) -> Tensor:
        if not weights.shape[-1]:
            return weights
        ones = torch.zeros_like(weights).scatter(-1, weights.argmax(-1, keepdim=True), 1.0)
        return ones * weights.sum(-1, keepdim=True)


@dataclass(frozen=True)
class Cell(Edit):
    """Set the weight of one query for one key; the other weights of the row keep their proportions and the row its sum.

    A query's number counts the queries of the attention since the change was opened, so that a cell of a translation
    that is written word by word can be set.

    Example:
        >>> import torch
        >>> Cell(query=0, key=1, weight=0.5)(torch.tensor([[[0.2, 0.0, 0.8]]]))
        tensor([[[0.1000, 0.5000, 0.4000]]])
    """

    query: int
    key: int
    weight: float

    def of(self, weights: Tensor, start: int) -> Tensor:
        row = self.query - start
        if not (0 <= row < weights.shape[-2] and 0 <= self.key < weights.shape[-1]):
            return weights
        weights_of_row = weights[..., row, :]
        is_key = torch.arange(weights.shape[-1], device=weights.device) == self.key
        other_weights = weights_of_row.masked_fill(is_key, 0.0)
        other_sum, total = other_weights.sum(-1, keepdim=True), weights_of_row.sum(-1, keepdim=True)
        spread = other_weights * (
            (total - self.weight) / other_sum.clamp(min=torch.finfo(other_sum.dtype).tiny)
        )
        edited = torch.where(is_key, torch.as_tensor(self.weight).to(weights_of_row), spread)
        row_index = torch.tensor([row], device=weights.device)
        return weights.index_copy(-2, row_index, edited.unsqueeze(-2))


@dataclass(frozen=True)
class OfOutputs(Edit):
    """An edit of the outputs of heads, or of their weights, by those of a run or of several."""

    replaces: Plane = field(default="outputs", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.replaces not in ("outputs", "weights"):
            raise ValueError(f'replaces is {self.replaces!r}: pass "outputs" or "weights"')
        if self.edits_outputs and self.keys is not None:
            raise ValueError(
                'the outputs of a head have no keys: leave out keys=, or pass replaces="weights"'
            )

    @property
    def edits_outputs(self) -> bool:
        return self.replaces == "outputs"

    def _of_some(self, weights: Tensor, numbers: Tensor, start: int) -> Tensor:
        return self.of(weights, start).index_select(-3, numbers)

    def _recorded(self, run: Seen, names: Sequence[str]) -> Tensor:
        """The outputs or the weights of another run."""
        name = next((each for each in names if each in run), None)
        if name is None:
            raise WatchError(
                f"the other run has no attention {names[0]!r}; it has {', '.join(run)}"
            )
        return run.readings(name).heads() if self.edits_outputs else run[name].weights()


@dataclass(frozen=True, eq=False)
class From(OfOutputs):
    """Put the outputs of heads, or their weights, of another run in place: activation patching.

    Source: Zhang and Nanda 2024, arXiv 2309.16042.

    Args:
        seen: the other run, of a watch with `values=True`. Its batch has as many entries, or one.
        replaces: "outputs", what the heads read, or "weights".
        places: for each query of this run, the query of the other run in its place, -1 for none, where the two
            texts have other lengths. By default they have the same length.

    Example:
        >>> import torch, regard
        >>> model = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()
        >>> x, y = torch.randn(2, 1, 5, 8)
        >>> with torch.no_grad(), regard.watch(model, values=True) as seen:
        ...     other, _ = model(y, y, y, need_weights=False)
        >>> with torch.no_grad(), regard.change(model, {"self": From(seen)}):
        ...     output, _ = model(x, x, x, need_weights=False)
        >>> torch.allclose(output, other, atol=1e-6)
        True
    """

    seen: Seen
    places: Sequence[int] | None = None
    recorded: Tensor | None = field(default=None, repr=False)  # of one attention

    def bound(self, names: Sequence[str]) -> From:
        recorded = self._recorded(self.seen, names)
        return replace(self, recorded=recorded)

    def of(self, weights: Tensor, start: int) -> Tensor:
        assert self.recorded is not None
        recorded, (count, width) = self.recorded.to(weights), weights.shape[-2:]
        places = range(start, start + count) if self.places is None else self.places
        places = (
            list(places)[:count] if self.places is None else list(places)[start : start + count]
        )
        length = recorded.shape[-2]
        differs = self.places is None and start == 0 and count not in (1, length)
        if (
            differs
            or len(places) != count
            or max(places, default=-1) >= length
            or recorded.shape[-1] != width
        ):
            raise WatchError(
                f"this run has {start + count} queries and the other {length}: pass texts of the same length, or"
                " places=, for each query of this run the query of the other"
            )
        rows = torch.tensor(places, device=weights.device)
        patched = recorded.index_select(-2, rows.clamp(min=0))
        try:
            patched = patched.expand(weights.shape)
        except RuntimeError:
            raise WatchError(
                f"the other run has {self.replaces} of shape {list(patched.shape)}, and this run {list(weights.shape)}:"
                " pass as many batch entries to both, or one to the other"
            ) from None
        return torch.where((rows < 0).unsqueeze(-1), weights, patched)


@dataclass(frozen=True, eq=False)
class Mean(OfOutputs):
    """Put the mean of its outputs in the place of each output of a head: what it says in any case.

    Source: Wang et al. 2023, arXiv 2211.00593, section 2.2.

    Args:
        seen: the run that the mean is of, of a watch with `values=True`; None for this run itself.
        over: "all", the mean over queries and batch entries, or "batch", that of each query over the batch.
        replaces: "outputs" or "weights".

    Example:
        >>> import torch
        >>> Mean(over="all")(torch.tensor([[[[0.0], [2.0]]]]))
        tensor([[[[1.],
                  [1.]]]])
    """

    seen: Seen | None = None
    over: Literal["all", "batch"] = "all"
    recorded: Tensor | None = field(default=None, repr=False)  # of one attention

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.over not in ("all", "batch"):
            raise ValueError(f'over is {self.over!r}: pass "all" or "batch"')

    def bound(self, names: Sequence[str]) -> Mean:
        recorded = None if self.seen is None else self._recorded(self.seen, names)
        return replace(self, recorded=recorded)

    def of(self, weights: Tensor, start: int) -> Tensor:
        recorded = weights if self.recorded is None else self.recorded.to(weights)
        if self.over == "all":
            mean = recorded.mean((*range(recorded.ndim - 3), -2), keepdim=True)
        else:
            mean = recorded.mean(tuple(range(recorded.ndim - 3)), keepdim=True)
            if self.recorded is not None:
                mean = mean[..., start : start + weights.shape[-2], :]
        try:
            return mean.expand(weights.shape)
        except RuntimeError:
            raise WatchError(
                f"the mean has shape {list(mean.shape)}, and this attention {list(weights.shape)}:"
                ' pass texts of the same length, or over="all"'
            ) from None
