"""The weights of a request, some rows at a time or block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from regard.attention.kernels.reference import weigh
from regard.attention.kernels.request import Request
from regard.attention.kernels.zeroed import Zeroed, are_finite, is_checked, zeroed
from regard.attention.looks.blocks import Block
from regard.attention.looks.entries import Stored, versions_of, with_tensors
from regard.attention.looks.softmax import AdditiveBlocks, ProductBlocks, is_additive
from regard.attention.looks.source import (
    BlockSource,
    ScoredBlocks,
    masked_scores,
    prepared,
    sizes,
    width,
)
from regard.attention.normalisers import Softmax
from regard.attention.scores.prepare import is_dots
from regard.attention.shapes import Shape
from regard.attention.versions import Versions
from regard.loops.availability import transformed

BLOCK = 1 << 20  # scores that a backward pass holds at a time
Progress = Callable[[int, int], None]


class Weights:
    """Weights (*batch, queries, keys) that are never held at once, and how an answer is made of them."""

    _batch: Shape | None = None

    def __init__(self, request: Request) -> None:
        self._request = request
        request.versions = request.versions or versions_of(request)

    def _unchanged(self) -> Request:
        """The request, where nothing that it reads was changed in place since the call."""
        self._versions.check_look()
        return self._request

    @property
    def _versions(self) -> Versions:
        return cast(Versions, self._request.versions)

    @property
    def shape(self) -> Shape:
        """(*batch, queries, keys)."""
        if self._batch is None:
            self._batch = self._request.batch()
        return (*self._batch, self._request.queries, self._request.keys)

    @property
    def device(self) -> torch.device:
        return self._request.frame.device

    def _source(self) -> BlockSource:
        request = self._unchanged()
        dots = is_dots(request.score) and type(request.normaliser) is Softmax
        if dots and not transformed():  # which forbids buffers, and a bound that is a number
            return ProductBlocks(request)
        if is_additive(request):
            return AdditiveBlocks(request)
        return ScoredBlocks(request)

    def _rows(self, rows: Tensor | None) -> Tensor:
        """The weights of these queries over every key; it broadcasts to (*batch, rows, keys)."""
        weights = weigh(self._unchanged(), rows)
        self._versions.leave_out_changed()
        return weights

    def _spread(self, rows: Tensor) -> Tensor:
        """The weights of these queries, of the look's own shape."""
        return self._rows(rows).expand(*self.shape[:-2], len(rows), self.shape[-1])

    def _scores(self, rows: Tensor) -> Tensor:
        """The scores over the temperature of these queries, -inf where they may not read."""
        scores = masked_scores(self._unchanged(), rows)
        self._versions.leave_out_changed()
        return scores.expand(*self.shape[:-2], len(rows), self.shape[-1])

    def _readable(self, rows: Tensor, columns: Tensor) -> Tensor | None:
        """Which of these keys each of these queries may read; None where nothing forbids any."""
        readable = self._unchanged().readable(rows, columns)
        self._versions.leave_out_changed()
        return readable

    def _temperature(self) -> float:
        """The softmax's; a TypeError where the weights are no softmax of scores."""
        normaliser = self._request.normaliser
        if isinstance(self._request.score, Stored):
            raise TypeError(
                "stored weights have no log-normaliser: use a look at the queries and keys"
            )
        if type(normaliser) is not Softmax:
            raise TypeError(f"only a softmax has a log-normaliser: the normaliser is {normaliser}")
        return normaliser.temperature

    def _cost(self) -> int:
        """How many numbers a pair of a query and a key takes to score."""
        return width(self._request.score)

    def _tensors(self) -> list[Tensor] | None:
        """The tensors that the weights depend on; None where a caller's function may hide some."""
        found: dict[int, Tensor] = {}  # each once: keys may be the queries themselves

        def keep(tensor: Tensor) -> Tensor:
            return found.setdefault(id(tensor), tensor)

        return None if with_tensors(self._request, keep) is None else list(found.values())

    def _learns(self) -> bool:
        """Whether a gradient is wanted of the weights."""
        if not torch.is_grad_enabled():
            return False
        tensors = self._tensors()
        if tensors is not None:
            return any(each.requires_grad for each in tensors)
        # Parameters may hide anywhere in a module or function of the caller's: one row tells.
        one = torch.zeros(min(1, self.shape[-2]), dtype=torch.long, device=self.device)
        return self._rows(one).requires_grad

    def _follows(self) -> bool:
        """Whether an answer is made of operations that can be differentiated and mapped."""
        return transformed() or self._learns()

    def _finite(self) -> Weights:
        """The same weights; keys and queries without weight do not spoil their gradients."""
        request = self._unchanged()
        if not is_checked(request) or are_finite(request.query, request.key):
            return self
        found = zeroed(request)
        return self if found is None else ZeroedWeights(self, found)

    def _spoilt(self, rows: Tensor | None) -> Tensor | None:
        """Which rows give no gradient, as NaN or infinity is read there; None for no row."""
        return None

    def _changed(self, change: Callable[[Request], Request]) -> Weights:
        """The weights of a changed request."""
        return Weights(change(self._request))

    def _empty(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        if dtype is None:
            joint = torch.promote_types(self._request.query.dtype, self._request.key.dtype)
            dtype = torch.promote_types(joint, torch.float32)
        if transformed():  # a buffer must have the axes that a transform hides
            return self._rows(torch.arange(0, device=self.device)).new_empty(shape, dtype=dtype)
        return torch.empty(shape, dtype=dtype, device=self.device)

    def _blocks(self, rows: Tensor | None, progress: Progress | None) -> Iterator[Block]:
        done, total = 0, self._rows_asked(rows)
        for block in self._source().blocks(rows):
            self._versions.leave_out_changed()
            yield block
            if progress:
                region = block.region
                done += prod(sizes(self.shape[:-2], region.entries)) * len(region.rows)
                progress(done, total)

    def _rows_asked(self, rows: Tensor | None) -> int:
        return prod(self.shape[:-2]) * (self.shape[-2] if rows is None else len(rows))

    @torch.no_grad()
    def _each(
        self,
        answer: Callable[[Block], Tensor],
        progress: Progress | None,
        dtype: torch.dtype | None = None,
    ) -> Tensor:
        answers = self._empty(*self.shape[:-1], dtype=dtype)
        for block in self._blocks(None, progress):
            answers[block.region.place] = answer(block)
        return answers

    def _learned(
        self,
        part: Callable[[Weights, Tensor, Tensor | None], Tensor],
        whole: Callable[[], Tensor],
        progress: Progress | None,
        rows: Tensor | None = None,
        weights: Tensor | None = None,
        summed: bool = False,
    ) -> Tensor:
        """An answer with its gradient.

        Args:
            part: the answer for some rows and their weights, in operations that can be differentiated.
            whole: all of it, streamed without gradients.
            rows: the rows to answer for; None for all.
            weights: their weights, where the answer has any.
            summed: whether parts are summed, not laid side by side along the last axis.
        """
        versions = self._versions
        look = self._finite()._changed(prepared)  # no strip does again what all share
        own = torch.arange(self.shape[-2], device=self.device) if rows is None else rows
        pairs = prod(self.shape[:-2]) * self.shape[-1] * self._cost()
        height = max(1, BLOCK // max(1, pairs))
        strips = [slice(at, at + height) for at in range(0, max(1, len(own)), height)]
        asked = Versions([] if weights is None or transformed() else [("weights", weights)])

        def of(look: Weights, weights: Tensor | None, at: slice) -> Tensor:
            versions.check_gradients()
            asked.check_gradients()
            return part(look, own[at], None if weights is None else weights[..., at])

        tensors = look._tensors()
        if tensors is not None and not transformed():
            tensors += [] if weights is None else [weights]
            places = {id(each): place for place, each in enumerate(tensors)}

            def again(views: Sequence[Tensor], at: slice) -> Tensor:
                def view(tensor: Tensor) -> Tensor:
                    return views[places[id(tensor)]]

                viewed = look._changed(lambda request: cast(Request, with_tensors(request, view)))
                return of(viewed, None if weights is None else view(weights), at)

            found: Tensor = _Recomputed.apply(again, whole, strips, summed, *tensors)  # type: ignore[no-untyped-call]
            return found
        kept = partial(checkpoint, of, use_reentrant=False, preserve_rng_state=False)
        run = of if transformed() else kept  # transforms follow the operations themselves
        parts = []
        for at in strips:
            parts.append(run(look, weights, at))
            if progress:
                done = prod(self.shape[:-2]) * min(at.stop, len(own))
                progress(done, self._rows_asked(rows))
        return torch.stack(parts).sum(0) if summed else torch.cat(parts, -1)


class ZeroedWeights(Weights):
    """Weights with zeros in place of NaN and infinity, for gradients.

    A row that may read such a key, or whose query holds such a number, keeps what the numbers
    came to (`given`), and gives no gradient.
    """

    def __init__(self, given: Weights, found: Zeroed) -> None:
        super().__init__(found.request)
        self._given, self._found = given, found

    def _changed(self, change: Callable[[Request], Request]) -> Weights:
        return ZeroedWeights(self._given, replace(self._found, request=change(self._request)))

    def _rows(self, rows: Tensor | None) -> Tensor:
        zeros = super()._rows(rows)
        return torch.where(self._spoilt(rows), self._given._rows(rows).detach(), zeros)

    def _scores(self, rows: Tensor) -> Tensor:
        zeros = super()._scores(rows)
        return torch.where(self._spoilt(rows), self._given._scores(rows).detach(), zeros)

    def _spoilt(self, rows: Tensor | None) -> Tensor:
        return self._found.spoilt(rows)


class _Recomputed(torch.autograd.Function):
    """Forward without gradients; backward a strip at a time, which is computed again and let go.

    So memory stays O(queries + keys), and gradients can be differentiated again. They are taken for
    views of the tensors, as one tensor may be computed from another.
    """

    @staticmethod
    def forward(
        ctx: Any,
        part: Callable[[Sequence[Tensor], slice], Tensor],  # of the tensors and a strip of rows
        whole: Callable[[], Tensor],
        strips: Sequence[slice],
        summed: bool,
        *tensors: Tensor,
    ) -> Tensor:
        ctx.part, ctx.strips, ctx.summed = part, strips, summed
        ctx.save_for_backward(*tensors)
        return whole()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,), again, needed = gradients, torch.is_grad_enabled(), ctx.needs_input_grad[4:]
        with torch.enable_grad():
            views = [tensor.view_as(tensor) for tensor in ctx.saved_tensors]
        wanted = [view for view, need in zip(views, needed, strict=True) if need]
        totals = [torch.zeros_like(view) for view in wanted]
        for at in ctx.strips:
            with torch.enable_grad():
                part = ctx.part(views, at)
            if not part.requires_grad:
                continue
            share = gradient if ctx.summed else gradient[..., at]
            found = torch.autograd.grad(part, wanted, share, allow_unused=True, create_graph=again)
            for i, own in enumerate(found):
                if own is not None:
                    totals[i] = totals[i] + own if again else totals[i].add_(own)
        each = iter(totals)
        return None, None, None, None, *(next(each) if need else None for need in needed)
