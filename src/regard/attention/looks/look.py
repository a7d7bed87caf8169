"""A look: what every query reads, computed when it is asked for."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from math import prod
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from regard.attention.kernels.reference import weigh
from regard.attention.kernels.request import Request
from regard.attention.kernels.zeroed import are_finite, is_checked, zeroed
from regard.attention.looks import learned
from regard.attention.looks.answers import Answers
from regard.attention.looks.caption import Caption
from regard.attention.looks.entries import Entry, merge, select, selection
from regard.attention.looks.folding import Progress
from regard.attention.looks.products import Products
from regard.attention.looks.source import MASKED, Scored, Source, fitted_bias, width
from regard.attention.looks.windows import Window, positions
from regard.attention.normalisers import Softmax
from regard.attention.precision import widen
from regard.attention.scores.prepare import is_dots, prepare_both
from regard.attention.shapes import Shape, ShapeError
from regard.loops.serving import transformed

PLOTTER = "regard.viewing.overview"  # of the wing above, which this one works without
BLOCK = 1 << 22  # scores held at a time where some columns are wanted with their gradient


class Look(Answers):
    """What the weights say, of shape (*batch, queries, keys). Nothing is computed until asked for.

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

    caption = Caption()

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

    def weights(
        self, rows: Window = None, columns: Window = None, progress: Progress | None = None
    ) -> Float[Tensor, "*batch rows columns"]:
        """The weights, or any window of them.

        Args:
            rows: positions of queries: a range, a slice, a tensor of indices; None for all.
            columns: positions of keys, likewise. A row is normalised over every key all the same.
        """
        batch, queries, keys = self.shape[:-2], *self.shape[-2:]
        if rows is None and columns is None:
            whole = self._finite()._rows(None).expand(*batch, queries, keys)
            if progress:
                progress(prod(batch) * queries, prod(batch) * queries)
            return whole
        down = positions(rows, queries, self.device)
        across = None if columns is None else positions(columns, keys, self.device)
        if not self._follows():
            return self._window(down, across, progress)
        look = self._finite()
        if across is None:
            return look._rows(down).expand(*batch, len(down), keys)
        parts = [
            look._spread(block).index_select(-1, across)
            for block in down.split(max(1, BLOCK // max(1, keys)))
        ]
        return torch.cat(parts, dim=-2)

    def readable(
        self, rows: Window = None, columns: Window = None
    ) -> Bool[Tensor, "*batch rows columns"] | None:
        """Which keys each query may read, by the mask and a bias of -inf; None where nothing forbids.

        Args:
            rows: positions of queries, as for `weights`.
            columns: positions of keys, likewise.

        Example:
            >>> import torch, regard
            >>> x = torch.zeros(2, 4)
            >>> regard.look(x, x, mask=regard.masks.causal(align="start")).readable()
            tensor([[ True, False],
                    [ True,  True]])
        """
        batch, queries, keys = self.shape[:-2], *self.shape[-2:]
        down, across = (
            positions(window, length, self.device)
            for window, length in ((rows, queries), (columns, keys))
        )
        allowed = self._readable(down, across)
        return None if allowed is None else allowed.expand(*batch, len(down), len(across))

    def _readable(self, rows: Tensor, columns: Tensor) -> Tensor | None:
        return self._request.readable(rows, columns)

    @torch.no_grad()
    def _window(self, down: Tensor, across: Tensor | None, progress: Progress | None) -> Tensor:
        keys = self.shape[-1]
        wide = keys if across is None else len(across)
        seen = self._empty(*self.shape[:-2], len(down), wide).zero_()
        for block in self._blocks(down, progress):
            place, weights = block.place, block.weights()
            into = seen[(*place.entries, place.at)]
            if across is None:
                into[..., place.across] = weights
            else:
                whole = F.pad(weights, (place.columns.start, keys - place.columns.stop))
                into.copy_(whole.index_select(-1, across))
        return seen

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
        from regard.attention.looks.mean import MeanLook

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
        from regard.attention.looks.notebook import html

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

    def _source(self) -> Source:
        request = self._request
        if transformed():  # dot products are written to buffers, and their bound is a number
            return Scored(request)
        if is_dots(request.score) and type(request.normaliser) is Softmax:
            return Products(request)
        return Scored(request)

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
        """The same look; keys and queries without weight do not spoil its gradients."""
        request = self._request
        if not is_checked(request) or are_finite(request.query, request.key):
            return self
        from regard.attention.looks.zeroed import ZeroedLook

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
