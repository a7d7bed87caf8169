"""A look: what every query reads, computed when it is asked for."""

from __future__ import annotations

from copy import copy
from importlib import import_module
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.kernels.request import Request, ask
from regard.attention.looks.entries import Entry, Stored, merge, select, selection
from regard.attention.looks.notebook import html
from regard.attention.looks.scored import MeanBlocks, ScaledBlocks, scaled
from regard.attention.looks.source import BlockSource
from regard.attention.looks.statistics import Statistics
from regard.attention.looks.weights import ALL, Change, Weights
from regard.attention.normalisers import Identity
from regard.attention.shapes import Shape, ShapeError, check_rank

# Imported by name: the library works without pictures and pages.
PLOTTER = "regard.viewing.overview"
SCENES, NOTEBOOK = "regard.explorer.scenes", "regard.explorer.notebook"


class Look(Statistics):
    """Statistics of attention weights (*batch, queries, keys), computed when a method is called.

    Every answer goes over the weights in blocks of whole rows and keeps no more than one of them:
    memory is O(queries + keys + answer). A softmax of dot products is quickest; one of additive
    scores on a processor takes about the time of `attend`. Of both, keys that no query of a block
    may read are not scored. Any other score or normaliser takes a few rows of all batch entries at
    a time, and the time of the score and the normaliser itself.

    `entropy`, `perplexity`, `log_normaliser`, `received` and `weights` can be trained with; blocks
    are then computed again in the backward pass. The others have no gradient. `progress` is called
    with the rows done and the rows there are, over all batch entries. The weights are those before
    dropout; half precisions are answered in float32.

    Answers raise a `ChangedError` once a tensor that the weights are made of was changed in place, or
    one that shares its memory, such as the next step of a cache of keys: torch counts the writes to
    all of it.

    Example:
        >>> import torch, regard
        >>> look = regard.look(torch.zeros(2, 4), torch.zeros(5, 4))
        >>> look.shape
        (2, 5)
        >>> look.weights(rows=range(1), columns=slice(3))
        tensor([[0.2000, 0.2000, 0.2000]])
    """

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
        indices = selection(entries, self.shape)
        look = self._at(indices)
        look.caption = self.caption.selected(indices, self.shape)
        return look

    def _at(self, entries: tuple[Entry, ...]) -> Look:
        return self._of(select(self._request, self.shape[:-2], entries))

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
        return self._of(merge(self._request, self.shape[:-2]))

    def _of(self, request: Request) -> Look:
        look = copy(self)
        Weights.__init__(look, request)
        return look

    def mean_heads(self) -> Look:
        """The look whose weights are the mean over heads, the last batch axis.

        Every answer of it is of the averaged weights: its entropy is that of what the heads read
        together, not the mean of theirs, which is `look.entropy().mean(-2)`.

        Raises:
            ShapeError: there is no batch axis.
        """
        if len(self.shape) < 3:
            raise ShapeError(
                f"the look has shape {list(self.shape)}: there is no axis of heads to average"
            )
        look = MeanLook(self)
        look.caption = self.caption.averaged()
        return look

    def scaled(self, factors: Float[Tensor, "*#batch keys"], *, normalised: bool = False) -> Look:
        """The look whose weights are these, times a factor for each key.

        With the norms of values as factors it tells how much each key moves, where the weights
        tell how much it is read (Kobayashi et al. 2020, arXiv 2004.10102). It has no gradient with
        respect to the factors.

        Args:
            factors: they broadcast to (*batch, keys).
            normalised: divide each row by its sum, so that the sum is 1 again, or 0.

        Raises:
            ShapeError: the factors do not broadcast.

        Example:
            >>> import torch, regard
            >>> look = regard.look(torch.zeros(1, 2), torch.zeros(2, 2))
            >>> look.scaled(torch.tensor([0.0, 3.0])).weights()
            tensor([[0.0000, 1.5000]])
        """
        shape = (*self.shape[:-2], self.shape[-1])
        try:
            factors = factors.detach().to(self.device).expand(shape)
        except RuntimeError as error:
            raise ShapeError(
                f"factors have shape {list(factors.shape)}: pass factors that broadcast to"
                f" {list(shape)}, one a key"
            ) from error
        look = ScaledLook(self, factors, normalised)
        look.caption = self.caption
        return look

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
            ShapeError: there are more than 16 panels, or none, or not a word for each query or key.
        """
        return import_module(PLOTTER).plot(self, height, width, **how)

    def explore(self, *, frame: bool = False, **how: Any) -> Any:
        """The explorer of this look, which a notebook displays: its heads, their measures, a map.

        Args:
            frame: show the page in a frame in any case, which needs no widgets.
            how: `queries` and `keys`, a word for each query and key; `links`, gold links as (key,
                query) places, which heads are sorted by; `entry`, the indices of the leading batch
                axes. The axes that it leaves are heads.

        Returns:
            A widget where `regard[notebook]` is installed, else a page in a frame.

        Raises:
            ShapeError: there is no weight to show, not a word for each query or key, or a link
                outside of them.
        """
        return import_module(NOTEBOOK).display(import_module(SCENES).of_look(self, **how), frame)

    def _repr_html_(self) -> str:
        return html(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={self.shape})"


class StoredLook(Look):
    """A look over weights that were computed before, such as those of a decoder step by step.

    A key of weight 0 counts as a key that may not be read.

    Args:
        weights: (*batch, queries, keys).

    Example:
        >>> import torch
        >>> StoredLook(torch.eye(3)).weights(rows=[2])
        tensor([[0., 0., 1.]])
    """

    def __init__(self, weights: Float[Tensor, "*batch queries keys"]) -> None:
        check_rank("weights", weights.shape)
        if not weights.is_floating_point():
            weights = weights.to(torch.get_default_dtype())
        keys = weights.new_empty(weights.shape[-1], 0)
        super().__init__(ask(weights, keys, score=Stored(), normaliser=Identity()))

    def _rows(self, rows: Tensor | None) -> Tensor:
        weights = self._unchanged().query  # as they are stored, half precisions too
        return weights if rows is None else weights.index_select(-2, rows)


class MeanLook(Look):
    """The look whose weights are another's, averaged over its last batch axis."""

    def __init__(self, look: Weights) -> None:
        super().__init__(look._request)
        self._look = look

    @property
    def shape(self) -> Shape:
        return (*self._look.shape[:-3], *self._look.shape[-2:])

    def _at(self, entries: tuple[Entry, ...]) -> MeanLook:
        return MeanLook(cast(Look, self._look)._at((*entries, slice(None))))

    def _merged(self) -> MeanLook:
        raise TypeError("heads were averaged already: merge the groups before mean_heads()")

    def _source(self) -> BlockSource:
        return MeanBlocks(self._look._source(), self._empty)

    def _rows(self, rows: Tensor | None) -> Tensor:
        weights = self._look._rows(rows)
        mean = weights.expand(*self._look.shape[:-2], *weights.shape[-2:]).mean(-3)
        spoilt = self._spoilt(rows)
        return mean if spoilt is None else torch.where(spoilt, mean.detach(), mean)

    def _readable(self, rows: Tensor, columns: Tensor) -> Tensor | None:
        allowed = self._look._readable(rows, columns)
        if allowed is None:
            return None
        return allowed.expand(*self._look.shape[:-2], *allowed.shape[-2:]).any(-3)

    def _temperature(self) -> float:
        raise TypeError("a mean of several softmaxes has no log-normaliser: use that of each head")

    def _cost(self) -> int:
        return self._look._cost() * self._look.shape[-3]

    def _finite(self) -> MeanLook:
        return MeanLook(self._look._finite())

    def _spoilt(self, rows: Tensor | None) -> Tensor | None:
        spoilt = self._look._spoilt(rows)
        if spoilt is None:
            return None
        return spoilt.expand(*self._look.shape[:-2], *spoilt.shape[-2:]).any(-3)

    def _with(
        self, change: Change, rows: Tensor | None = None, columns: slice | Tensor = ALL
    ) -> MeanLook:
        return MeanLook(self._look._with(change, rows, columns))


class ScaledLook(Look):
    """The look whose weights are another's, times a factor for each key, (*batch, keys)."""

    def __init__(self, look: Weights, factors: Tensor, normalised: bool) -> None:
        super().__init__(look._request)
        self._look, self._factors, self._normalised = look, factors, normalised

    @property
    def shape(self) -> Shape:
        return self._look.shape

    def _at(self, entries: tuple[Entry, ...]) -> ScaledLook:
        return self._with_look(cast(Look, self._look)._at(entries), self._factors[entries])

    def _merged(self) -> ScaledLook:
        return self._with_look(cast(Look, self._look)._merged(), self._factors.flatten(-3, -2))

    def _with_look(self, look: Weights, factors: Tensor | None = None) -> ScaledLook:
        return ScaledLook(look, self._factors if factors is None else factors, self._normalised)

    def _source(self) -> BlockSource:
        return ScaledBlocks(self._look._source(), self._factors, self._normalised)

    def _rows(self, rows: Tensor | None) -> Tensor:
        return scaled(self._look._rows(rows), self._factors, self._normalised)

    def _readable(self, rows: Tensor, columns: Tensor) -> Tensor | None:
        return self._look._readable(rows, columns)

    def _temperature(self) -> float:
        raise TypeError("scaled weights have no log-normaliser: use that of the look itself")

    def _cost(self) -> int:
        return self._look._cost()

    def _finite(self) -> ScaledLook:
        return self._with_look(self._look._finite())

    def _spoilt(self, rows: Tensor | None) -> Tensor | None:
        return self._look._spoilt(rows)

    def _with(
        self, change: Change, rows: Tensor | None = None, columns: slice | Tensor = ALL
    ) -> ScaledLook:
        return self._with_look(self._look._with(change, rows, columns), self._factors[..., columns])
