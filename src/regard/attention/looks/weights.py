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

from regard.attention.kernels.recomputing import Surroundings
from regard.attention.kernels.reference import weigh
from regard.attention.kernels.request import Request
from regard.attention.kernels.zeroed import Zeroed, are_finite, zeroed
from regard.attention.looks.blocks import Block
from regard.attention.looks.entries import Stored, with_tensors
from regard.attention.looks.scored import ScoredBlocks, masked_scores, prepared, width
from regard.attention.looks.source import (
    AdditiveBlocks,
    BlockSource,
    ProductBlocks,
    is_additive,
    sizes,
)
from regard.attention.normalisers import Softmax
from regard.attention.scores.score import is_dots, with_parameters
from regard.attention.shapes import Shape
from regard.attention.versions import Reads, Versions
from regard.loops.availability import transformed

BLOCK = 1 << 20  # scores that a backward pass holds at a time
Progress = Callable[[int, int], None]


class Weights:
    """Weights (*batch, queries, keys) that are never held at once, and how an answer is made of them."""

    def __init__(self, request: Request) -> None:
        self._request = request
        rules = request.mask_tensors()
        self._shape: Shape = (*request.batch(), request.frame.queries, request.frame.keys)
        self._tensors, self._is_complete = _tensors_of(request)
        self._calls_functions = not self._is_complete or rules is None
        if request.versions is None:
            tensors = (
                self._tensors + [("mask", tensor) for tensor in rules] if rules else self._tensors
            )
            if request.is_traced:
                request.versions = Versions()
            elif self._calls_functions:
                request.versions = _versions_read(request, tensors)
            else:
                request.versions = Versions(tensors)

    def _note_written(self) -> None:
        """Leave out tensors that a function of the caller's wrote to, just now."""
        if self._calls_functions:
            self._versions.leave_out_changed()

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
        return self._shape

    @property
    def device(self) -> torch.device:
        return self._request.frame.device

    def _source(self) -> BlockSource:
        request = self._unchanged()
        dots = is_dots(request.score) and type(request.normaliser) is Softmax
        if dots and not transformed():  # which forbids buffers, and a bound that is a number
            return ProductBlocks(request, self.shape[:-2])
        if is_additive(request):
            return AdditiveBlocks(request, self.shape[:-2])
        return ScoredBlocks(request, self.shape[:-2])

    def _rows(self, rows: Tensor | None) -> Tensor:
        """The weights of these queries over every key; it broadcasts to (*batch, rows, keys)."""
        weights = weigh(self._unchanged(), rows)
        self._note_written()
        return weights

    def _spread(self, rows: Tensor) -> Tensor:
        """The weights of these queries, of the look's own shape."""
        return self._rows(rows).expand(*self.shape[:-2], len(rows), self.shape[-1])

    def _scores(self, rows: Tensor) -> Tensor:
        """The scores over the temperature of these queries, -inf where they may not read."""
        scores = masked_scores(self._unchanged(), rows)
        self._note_written()
        return scores.expand(*self.shape[:-2], len(rows), self.shape[-1])

    def _readable(self, rows: Tensor, columns: Tensor) -> Tensor | None:
        """Which of these keys each of these queries may read; None where nothing forbids any."""
        readable = self._unchanged().readable(rows, columns)
        self._note_written()
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

    def _learns(self) -> bool:
        """Whether a gradient is wanted of the weights."""
        if not torch.is_grad_enabled():
            return False
        if self._is_complete:
            return any(tensor.requires_grad for _, tensor in self._tensors)
        # Parameters may hide anywhere in a module or function of the caller's: one row tells.
        row = torch.zeros(min(1, self.shape[-2]), dtype=torch.long, device=self.device)
        return self._rows(row).requires_grad

    def _follows(self) -> bool:
        """Whether an answer is made of operations that can be differentiated and mapped."""
        return transformed() or self._learns()

    def _finite(self) -> Weights:
        """The same weights; keys and queries without weight do not spoil their gradients."""
        request = self._request
        if not request.is_checked or are_finite(request.query, request.key):
            return self
        zeros = zeroed(request)
        return self if zeros is None else ZeroedWeights(self, zeros)

    def _spoilt(self, rows: Tensor | None) -> Tensor | None:
        """Which rows give no gradient, as NaN or infinity is read there; None for no row."""
        return None

    def _with(self, change: Callable[[Request], Request]) -> Weights:
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
        finished, total = 0, self._rows_asked(rows)
        for block in self._source().blocks(rows):
            self._note_written()
            yield block
            if progress:
                region = block.region
                finished += prod(sizes(self.shape[:-2], region.entries)) * len(region.rows)
                progress(finished, total)

    def _rows_asked(self, rows: Tensor | None) -> int:
        return prod(self.shape[:-2]) * (self.shape[-2] if rows is None else len(rows))

    @torch.no_grad()
    def _by_row(
        self,
        answer: Callable[[Block], Tensor],
        progress: Progress | None,
        dtype: torch.dtype | None = None,
    ) -> Tensor:
        answers = None
        for block in self._blocks(None, progress):
            rows = answer(block)
            if answers is None:  # it has the axes that a transform hides, as the blocks have
                answers = rows.new_empty(self.shape[:-1])
            answers[(*block.region.entries, block.region.at)] = rows
        return self._empty(*self.shape[:-1], dtype=dtype) if answers is None else answers

    def _learned(
        self,
        answer: Callable[[Weights, Tensor, Tensor | None], Tensor],
        streamed: Callable[[], Tensor],
        progress: Progress | None,
        rows: Tensor | None = None,
        weights: Tensor | None = None,
        summed: bool = False,
    ) -> Tensor:
        """An answer with its gradient.

        Args:
            answer: that for some rows and their weights, in operations that can be differentiated.
            streamed: the answer for all rows, without gradients.
            rows: the rows to answer for; None for all.
            weights: their weights, where the answer has any.
            summed: whether the answers of strips are summed, not laid side by side along the last axis.
        """
        versions = self._versions
        look = self._finite()._with(prepared)  # no strip does again what all share
        places = torch.arange(self.shape[-2], device=self.device) if rows is None else rows
        pairs = prod(self.shape[:-2]) * self.shape[-1] * self._cost()
        height = max(1, BLOCK // max(1, pairs))
        strips = [slice(at, at + height) for at in range(0, max(1, len(places)), height)]
        shares = Versions([] if weights is None or transformed() else [("weights", weights)])

        def answer_strip(look: Weights, weights: Tensor | None, at: slice) -> Tensor:
            versions.check_gradients()
            shares.check_gradients()
            return answer(look, places[at], None if weights is None else weights[..., at])

        if look._is_complete and not transformed():
            # Each once: keys may be the queries themselves.
            tensors = list({id(tensor): tensor for _, tensor in look._tensors}.values())
            tensors += [] if weights is None else [weights]
            indices = {id(tensor): index for index, tensor in enumerate(tensors)}

            def answer_again(views: Sequence[Tensor], at: slice) -> Tensor:
                def view(tensor: Tensor) -> Tensor:
                    return views[indices[id(tensor)]]

                versions.check_gradients()  # before the mask, which may be the tensor that changed
                viewed = look._with(lambda request: cast(Request, with_tensors(request, view)))
                return answer_strip(viewed, None if weights is None else view(weights), at)

            recomputed: Tensor = _Recomputed.apply(answer_again, streamed, strips, summed, *tensors)  # type: ignore[no-untyped-call]
            return recomputed
        checkpointed = partial(
            checkpoint, answer_strip, use_reentrant=False, preserve_rng_state=False
        )
        run = answer_strip if transformed() else checkpointed  # transforms follow the operations
        answers = []
        for at in strips:
            answers.append(run(look, weights, at))
            if progress:
                finished = prod(self.shape[:-2]) * min(at.stop, len(places))
                progress(finished, self._rows_asked(rows))
        return torch.stack(answers).sum(0) if summed else torch.cat(answers, -1)


def _tensors_of(request: Request) -> tuple[list[tuple[str, Tensor]], bool]:
    """The tensors that the scores are made of, and whether no function of the caller's may hide others."""
    query = "weights" if isinstance(request.score, Stored) else "query"
    tensors = [(query, request.query), ("key", request.key)]
    if request.bias is not None:
        tensors.append(("bias", request.bias))

    def note(parameter: Tensor, axes: int) -> Tensor:
        tensors.append(("a parameter of the score", parameter))
        return parameter

    is_ours = with_parameters(request.score, note) is not None
    return tensors, is_ours and request.normaliser.is_ours and request.bias_function is None


def _versions_read(request: Request, tensors: list[tuple[str, Tensor]]) -> Versions:
    """The versions of these tensors and of others that functions of the caller's read: one row shows them."""
    row = torch.arange(min(1, request.queries), device=request.frame.device)
    reads = Reads(tensors)
    with Surroundings(request.query).restore(), reads:
        weigh(request, row)
    return reads.versions()


class ZeroedWeights(Weights):
    """Weights with zeros in place of NaN and infinity, for gradients.

    A row that may read such a key, or whose query holds such a number, keeps the numbers of the
    call (`spoilt`), and gives no gradient.
    """

    def __init__(self, spoilt: Weights, zeros: Zeroed) -> None:
        super().__init__(zeros.request)
        self._original, self._zeros = spoilt, zeros

    def _with(self, change: Callable[[Request], Request]) -> Weights:
        return ZeroedWeights(self._original, replace(self._zeros, request=change(self._request)))

    def _rows(self, rows: Tensor | None) -> Tensor:
        weights = super()._rows(rows)
        return torch.where(self._spoilt(rows), self._original._rows(rows).detach(), weights)

    def _scores(self, rows: Tensor) -> Tensor:
        scores = super()._scores(rows)
        return torch.where(self._spoilt(rows), self._original._scores(rows).detach(), scores)

    def _spoilt(self, rows: Tensor | None) -> Tensor:
        return self._zeros.spoilt(rows)


class _Recomputed(torch.autograd.Function):
    """Forward without gradients; backward a strip at a time, which is computed again and let go.

    So memory stays O(queries + keys), and gradients can be differentiated again. They are taken for
    views of the tensors, as one tensor may be computed from another.
    """

    @staticmethod
    def forward(
        ctx: Any,
        answer: Callable[[Sequence[Tensor], slice], Tensor],  # of the tensors and a strip of rows
        streamed: Callable[[], Tensor],
        strips: Sequence[slice],
        summed: bool,
        *tensors: Tensor,
    ) -> Tensor:
        ctx.answer, ctx.strips, ctx.summed = answer, strips, summed
        ctx.save_for_backward(*tensors)
        return streamed()

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,), recorded, needed = upstream, torch.is_grad_enabled(), ctx.needs_input_grad[4:]
        with torch.enable_grad():
            views = [tensor.view_as(tensor) for tensor in ctx.saved_tensors]
        leaves = [view for view, need in zip(views, needed, strict=True) if need]
        totals = [torch.zeros_like(view) for view in leaves]
        for at in ctx.strips:
            with torch.enable_grad():
                answer = ctx.answer(views, at)
            if not answer.requires_grad:
                continue
            share = gradient if ctx.summed else gradient[..., at]
            sums = torch.autograd.grad(
                answer, leaves, share, allow_unused=True, create_graph=recorded
            )
            for i, addend in enumerate(sums):
                if addend is not None:
                    totals[i] = totals[i] + addend if recorded else totals[i].add_(addend)
        gradients = iter(totals)
        return None, None, None, None, *(next(gradients) if need else None for need in needed)
