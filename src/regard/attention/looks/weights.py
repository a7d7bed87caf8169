"""The weights of a request, some rows at a time or block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from regard.attention.kernels.blocked import spans_of
from regard.attention.kernels.recomputing import (
    KEY,
    QUERY,
    VALUE,
    Blocks,
    Recomputed,
    Span,
    Surroundings,
)
from regard.attention.kernels.reference import weigh
from regard.attention.kernels.request import Request
from regard.attention.kernels.zeroed import Zeroed, are_finite, zeroed
from regard.attention.looks.blocks import Block
from regard.attention.looks.entries import Stored
from regard.attention.looks.scored import ScoredBlocks, masked_scores, prepared, width
from regard.attention.looks.source import (
    AdditiveBlocks,
    BlockSource,
    ProductBlocks,
    is_additive,
    sizes,
)
from regard.attention.masks.mask import pick
from regard.attention.normalisers import Softmax
from regard.attention.scores.score import is_dots, with_parameters
from regard.attention.shapes import Shape
from regard.attention.versions import Reads, Versions
from regard.loops.availability import differentiated, transformed

BLOCK = 1 << 20  # scores that a backward pass holds at a time
Progress = Callable[[int, int], None]
Change = Callable[[Request], Request]
ALL = slice(None)


class Weights:
    """Weights (*batch, queries, keys) that are never held at once, and how an answer is made of them."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._tensors, self._is_complete = _tensors_of(request)
        rules = request.mask_tensors()
        self._shape: Shape = (*request.batch(), request.frame.queries, request.frame.keys)
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
        """The weights of these queries, or of all, over every key; it broadcasts to (*batch, rows, keys)."""
        weights = weigh(self._unchanged(), rows)
        self._note_written()
        return weights

    def _spread(self, rows: Tensor | None = None) -> Tensor:
        """The weights of these queries, or of all, of the look's own shape."""
        count = self.shape[-2] if rows is None else len(rows)
        return self._rows(rows).expand(*self.shape[:-2], count, self.shape[-1])

    def _scores(self) -> Tensor:
        """The scores over the temperature, -inf where a key may not be read."""
        scores = masked_scores(self._unchanged())
        self._note_written()
        return scores.expand(self.shape)

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
        if self._is_complete and not self._learns():
            return self
        request = self._request
        if not request.is_checked or are_finite(request.query, request.key):
            return self
        zeros = zeroed(request)
        return self if zeros is None else ZeroedWeights(self, zeros)

    def _spoilt(self, rows: Tensor | None) -> Tensor | None:
        """Which rows give no gradient, as NaN or infinity is read there; None for no row."""
        return None

    def _with(
        self, change: Change, rows: Tensor | None = None, columns: slice | Tensor = ALL
    ) -> Weights:
        """The weights of a changed request; perhaps one of these rows and these columns alone."""
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
        answer: Callable[[Weights, Tensor | None], Tensor],
        streamed: Callable[[], Tensor],
        progress: Progress | None,
        rows: Tensor | None = None,
        weights: Tensor | None = None,
        summed: bool = False,
    ) -> Tensor:
        """An answer with its gradient: each section of rows is computed again in the backward pass.

        Args:
            answer: that of a section and the weights of its rows, in operations that can be differentiated.
            streamed: the answer for all rows, without gradients.
            rows: the rows to answer for; None for all.
            weights: their weights, where the answer has any.
            summed: whether the answers of sections are summed, not laid side by side along the last axis.
        """
        versions, keys = self._versions, self.shape[-1]
        look = self._finite()._with(prepared)  # no section does again what all share
        request = look._request
        places = torch.arange(self.shape[-2], device=self.device) if rows is None else rows
        query, bias = request.query, request.bias
        if rows is not None:
            query, bias = pick(query, -2, rows), None if bias is None else pick(bias, -2, rows)
        shares = Versions([] if weights is None or transformed() else [("weights", weights)])

        def answer_section(
            query: Tensor, key: Tensor, weights: Tensor | None, bias: Tensor | None, span: Span
        ) -> Tensor:
            versions.check_gradients()
            shares.check_gradients()
            at = places[span.rows], span.positions(self.device)[1]

            def change(request: Request) -> Request:
                return request.section(*at, (query, key, bias))

            section = look._with(change, at[0], span.columns)
            self._note_written()
            return answer(section, weights).unsqueeze(-1)

        height = BLOCK // max(1, prod(self.shape[:-2]) * keys * self._cost())
        if rows is None:
            spans = spans_of(request, height)
        else:
            strips = range(0, max(1, len(rows)), max(1, height))
            spans = [Span(slice(at, at + strips.step), slice(0, keys)) for at in strips]
        blocks = Answers(
            answer_section, spans, KEY if summed else QUERY, streamed=streamed, keys=keys
        )
        tensors = query, request.key, None if weights is None else weights.unsqueeze(-1), bias
        if not transformed() and not differentiated():
            _, leaves = blocks.probe(tensors)
            if leaves is not None:
                return Recomputed.apply(blocks, *tensors, *leaves).squeeze(-1)  # type: ignore[no-untyped-call,no-any-return]
        checkpointed = partial(
            checkpoint, blocks.at, tensors, use_reentrant=False, preserve_rng_state=False
        )
        run = partial(blocks.at, tensors) if transformed() else checkpointed
        answers = []
        for span in spans:
            answers.append(run(span))
            if progress:
                finished = prod(self.shape[:-2]) * min(span.rows.stop, len(places))
                progress(finished, self._rows_asked(rows))
        return blocks.join(answers).squeeze(-1)


@dataclass(frozen=True, kw_only=True)
class Answers(Blocks):
    """Answers of sections, (..., rows, 1), or sums over rows, (..., keys, 1). The value is the weights of rows."""

    streamed: Callable[[], Tensor]
    keys: int

    def place(self, side: int, tensor: Tensor, span: Any) -> Any:
        return super().place(QUERY if side == VALUE else side, tensor, span)

    def write(self, tensors: Sequence[Any]) -> Tensor:
        return self.streamed().unsqueeze(-1)

    def join(self, blocks: Sequence[Tensor]) -> Tensor:
        if self.result == QUERY:
            return super().join(blocks)
        total = blocks[0].new_zeros(*blocks[0].shape[:-2], self.keys, 1)
        for span, block in zip(self.spans, blocks, strict=True):
            total = total.index_add(-2, span.positions(block.device)[1], block)
        return total


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

    def _with(
        self, change: Change, rows: Tensor | None = None, columns: slice | Tensor = ALL
    ) -> Weights:
        zeros, original = replace(self._zeros, request=change(self._request)), self._original
        if rows is not None:
            queries, keys = pick(zeros.queries, -1, rows), zeros.keys[..., columns]
            zeros = replace(zeros, queries=queries, keys=keys)
            across = torch.arange(self.shape[-1], device=self.device)[columns]
            original = original._with(lambda request: request.section(rows, across), rows, columns)
        return ZeroedWeights(original, zeros)

    def _rows(self, rows: Tensor | None) -> Tensor:
        weights = super()._rows(rows)
        return torch.where(self._spoilt(rows), self._original._rows(rows).detach(), weights)

    def _scores(self) -> Tensor:
        return torch.where(self._spoilt(None), self._original._scores().detach(), super()._scores())

    def _spoilt(self, rows: Tensor | None) -> Tensor:
        return self._zeros.spoilt(rows)
