"""A look: what every query reads, computed when it is asked for."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from regard.attention.kernels.reference import weigh
from regard.attention.kernels.request import Request
from regard.attention.kernels.zeroed import Zeroed, are_finite, is_checked, zeroed
from regard.attention.looks import learned
from regard.attention.looks.entries import Entry, merge, select, selection
from regard.attention.looks.notebook import html
from regard.attention.looks.products import ProductBlocks
from regard.attention.looks.source import (
    MASKED,
    BlockSource,
    MeanBlocks,
    ScoredBlocks,
    fitted_bias,
    width,
)
from regard.attention.looks.statistics import Statistics
from regard.attention.normalisers import Softmax
from regard.attention.precision import widen
from regard.attention.scores.prepare import is_dots, prepare_both
from regard.attention.shapes import Shape, ShapeError
from regard.loops.availability import transformed

PLOTTER = "regard.viewing.overview"  # imported by name: the library works without pictures


class Look(Statistics):
    """Statistics of attention weights (*batch, queries, keys), computed when a method is called.

    Every answer goes over the weights in blocks of whole rows and keeps no more than one of them:
    memory is O(queries + keys + answer). A softmax of dot products is quickest, and keys that no
    query of a block may read are not scored; any other score or normaliser takes a few rows of all
    batch entries at a time, and the time of the score and the normaliser itself. The softmax's row
    normalisers are kept, so that a second answer costs less than the first. They are dropped when
    torch reports a change of a tensor that the look was made of. Writes to `tensor.data` or to an
    array of `tensor.numpy()` are not reported: make a new look after one.

    `entropy`, `perplexity`, `log_normaliser`, `received` and `weights` can be trained with; blocks
    are then computed again in the backward pass. The others have no gradient. `progress` is called
    with the rows done and the rows there are, over all batch entries. The weights are those before
    dropout; half precisions are answered in float32.

    Example:
        >>> import torch, regard
        >>> look = regard.look(torch.zeros(2, 4), torch.zeros(5, 4))
        >>> look.shape
        (2, 5)
        >>> look.weights(rows=range(1), columns=slice(3))
        tensor([[0.2000, 0.2000, 0.2000]])
    """

    def __init__(self, request: Request) -> None:
        self._request = request
        self._batch: Shape | None = None

    @property
    def shape(self) -> Shape:
        """(*batch, queries, keys)."""
        if self._batch is None:
            self._batch = self._request.batch()
        return (*self._batch, self._request.queries, self._request.keys)

    @property
    def device(self) -> torch.device:
        return self._request.frame.device

    def _readable(self, rows: Tensor, columns: Tensor) -> Tensor | None:
        return self._request.readable(rows, columns)

    def __getitem__(self, entries: Any) -> Look:
        """The look at some batch entries and heads: ``look[0]``, ``look[..., 3]``, ``look[:2, 1:4]``.

        Nothing is computed: a look at one head scores that head alone. A score that is a function
        of the caller's is computed for all of them, as it may tell them apart.

        Args:
            entries: whole numbers, slices and ... for the batch axes. Queries and keys are chosen
                by `weights(rows=, columns=)`.

        Raises:
            IndexError: a number is out of range.
            ShapeError: there are more indices than batch axes.
            TypeError: an index is something else.

        Example:
            >>> import torch, regard
            >>> look = regard.look(torch.zeros(2, 8, 3, 4), torch.zeros(2, 8, 5, 4))
            >>> look[0].shape, look[:, 1].shape, look[..., 2:4].shape
            ((8, 3, 5), (2, 3, 5), (2, 2, 3, 5))
        """
        chosen = selection(entries, self.shape)
        look = self._at(chosen)
        look.caption = self.caption.chosen(chosen, self.shape)
        return look

    def _at(self, entries: tuple[Entry, ...]) -> Look:
        return Look(select(self._request, self.shape[:-2], entries))

    def merge_groups(self) -> Look:
        """The look whose last two batch axes are one: the heads of grouped attention.

        Grouped attention has the axes (*batch, key heads, group, queries, keys).

        Raises:
            ShapeError: there are not two batch axes.

        Example:
            >>> import torch, regard
            >>> query, key = torch.zeros(2, 4, 3, 8), torch.zeros(2, 1, 5, 8)
            >>> regard.look(query, key).merge_groups().shape
            (8, 3, 5)
        """
        if len(self.shape) < 4:
            raise ShapeError(
                f"the look has shape {list(self.shape)}: there are no axes of key heads and groups"
            )
        look = self._merged()
        look.caption = self.caption.merged()
        return look

    def _merged(self) -> Look:
        return Look(merge(self._request, self.shape[:-2]))

    def mean_heads(self) -> Look:
        """The look whose weights are the mean over heads, the last batch axis.

        Every answer of it is of the averaged weights: its entropy is that of what the heads read
        together, not the mean of theirs, which is `look.entropy().mean(-2)`.

        Raises:
            ShapeError: there is no batch axis.
        """
        return MeanLook(self)

    def plot(self, height: int = 64, width: int = 64, **how: Any) -> Any:
        """The map as a figure of matplotlib's: a panel for each head, all on one scale.

        A notebook shows it, with or without `%matplotlib inline`.

        Args:
            height: rows of a map, at most.
            width: columns of a map, at most.
            how: `rows`, `columns` and `reduce` of `map`; `entry`, the batch entry to draw by its
                leading axes; `title`; `queries` and `keys`, a word for each query and key; `theme`,
                "light" or "dark".

        Raises:
            ShapeError: there are more than 16 panels, or none.
        """
        return import_module(PLOTTER).plot(self, height, width, **how)

    def _repr_html_(self) -> str:
        return html(self)

    def _rows(self, rows: Tensor | None) -> Tensor:
        return weigh(self._request, rows)

    def _spoilt(self, rows: Tensor | None) -> Tensor | None:
        """Which rows give no gradient, as NaN or infinity is read there; None for no row."""
        return None

    def _scores(self, rows: Tensor) -> Tensor:
        scores = weigh(replace(self._request, normaliser=MASKED), rows) / self._temperature()
        return scores.expand(*self.shape[:-2], len(rows), self.shape[-1])

    def _temperature(self) -> float:
        normaliser = self._request.normaliser
        if type(normaliser) is not Softmax:
            raise TypeError(f"only a softmax has a log-normaliser: the normaliser is {normaliser}")
        return normaliser.temperature

    def _source(self) -> BlockSource:
        request = self._request
        if transformed():  # dot products are written to buffers, and their bound is a number
            return ScoredBlocks(request)
        if is_dots(request.score) and type(request.normaliser) is Softmax:
            return ProductBlocks(request)
        return ScoredBlocks(request)

    def _cost(self) -> int:
        return width(self._request.score)

    def _dtype(self) -> torch.dtype:
        joint = torch.promote_types(self._request.query.dtype, self._request.key.dtype)
        return torch.promote_types(joint, torch.float32)

    def _leaves(self) -> list[Tensor] | None:
        return learned.leaves_of(self._request)

    def _learner(self) -> Look:
        return self._finite()._prepared()

    def _prepared(self) -> Look:
        request = self._request
        score, query, key = prepare_both(request.score, widen(request.query), widen(request.key))
        bias = fitted_bias(request)
        return Look(replace(request, score=score, query=query, key=key, bias=bias))

    def _finite(self) -> Look:
        request = self._request
        if not is_checked(request) or are_finite(request.query, request.key):
            return self
        found = zeroed(request)
        return self if found is None else ZeroedLook(self, found)

    def _learns(self) -> bool:
        if not torch.is_grad_enabled():
            return False
        leaves = self._leaves()
        if leaves is not None:
            return any(each.requires_grad for each in leaves)
        # Parameters may hide anywhere in a module or function of the caller's: one row tells.
        one = torch.zeros(min(1, self._request.queries), dtype=torch.long, device=self.device)
        return self._rows(one).requires_grad

    def _stamp(self) -> object:
        if transformed():
            return None
        leaves = self._leaves() if type(self._request.normaliser) is Softmax else None
        masks = learned.tensors_of(self._request.mask)
        if leaves is None or masks is None:
            return None
        if any(each.is_inference() for each in [*leaves, *masks]):
            return None
        autocast = torch.is_autocast_enabled(self.device.type)
        return autocast, *(each._version for each in [*leaves, *masks])

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={self.shape})"


class MeanLook(Look):
    """The look whose weights are another's, averaged over its last batch axis."""

    def __init__(self, look: Look) -> None:
        if len(look.shape) < 3:
            raise ShapeError(
                f"the look has shape {list(look.shape)}: there is no axis of heads to average"
            )
        self._look, self.caption = look, look.caption.averaged()

    @property
    def shape(self) -> Shape:
        return (*self._look.shape[:-3], *self._look.shape[-2:])

    @property
    def device(self) -> torch.device:
        return self._look.device

    def _at(self, entries: tuple[Entry, ...]) -> MeanLook:
        return MeanLook(self._look._at((*entries, slice(None))))

    def _merged(self) -> MeanLook:
        raise TypeError("heads were averaged already: merge the groups before mean_heads()")

    def _rows(self, rows: Tensor | None) -> Tensor:
        weights = self._look._rows(rows)
        batch, count = self._look.shape[:-2], weights.shape[-2]
        mean = weights.expand(*batch, count, self.shape[-1]).mean(-3)
        spoilt = self._spoilt(rows)
        return mean if spoilt is None else torch.where(spoilt, mean.detach(), mean)

    def _spoilt(self, rows: Tensor | None) -> Tensor | None:
        spoilt = self._look._spoilt(rows)
        if spoilt is None:
            return None
        return spoilt.expand(*self._look.shape[:-2], *spoilt.shape[-2:]).any(-3)

    def _readable(self, rows: Tensor, columns: Tensor) -> Tensor | None:
        allowed = self._look.readable(rows, columns)
        return None if allowed is None else allowed.any(-3)

    def _scores(self, rows: Tensor) -> Tensor:
        raise NotImplementedError

    def _temperature(self) -> float:
        raise TypeError("a mean of several softmaxes has no log-normaliser: look at each head")

    def _source(self) -> BlockSource:
        return MeanBlocks(self._look._source(), self._empty)

    def _cost(self) -> int:
        return self._look._cost() * self._look.shape[-3]

    def _dtype(self) -> torch.dtype:
        return self._look._dtype()

    def _leaves(self) -> list[Tensor] | None:
        return self._look._leaves()

    def _learner(self) -> MeanLook:
        return MeanLook(self._look._learner())

    def _finite(self) -> MeanLook:
        return MeanLook(self._look._finite())

    def _learns(self) -> bool:
        return self._look._learns()

    def _stamp(self) -> object:
        return None


class ZeroedLook(Look):
    """A look with zeros in place of NaN and infinity, for gradients.

    A row that may read such a key, or whose query holds such a number, keeps what the numbers
    came to, and gives no gradient.

    Args:
        look: With the numbers as they are.
        found: Its request with zeros.
    """

    def __init__(self, look: Look, found: Zeroed) -> None:
        super().__init__(found.request)
        self._look, self._found = look, found

    def _prepared(self) -> ZeroedLook:
        prepared = super()._prepared()
        return ZeroedLook(self._look, replace(self._found, request=prepared._request))

    def _rows(self, rows: Tensor | None) -> Tensor:
        return self._joined(rows, self._look._rows(rows), super()._rows(rows))

    def _scores(self, rows: Tensor) -> Tensor:
        return self._joined(rows, self._look._scores(rows), super()._scores(rows))

    def _spoilt(self, rows: Tensor | None) -> Tensor:
        return self._found.spoilt(rows)

    def _joined(self, rows: Tensor | None, given: Tensor, zeroed: Tensor) -> Tensor:
        return torch.where(self._spoilt(rows), given.detach(), zeroed)
