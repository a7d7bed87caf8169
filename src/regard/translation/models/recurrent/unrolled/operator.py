"""The recurrence over all steps, forwards and back through time, without a record of each step.

    u_k = W s_{k-1} + b,   x_k = given_k [+ F c_k,   c_k = attend(last columns of u_k)]
    s_k = cell(x_k, u_k, s_{k-1})

Backwards (Werbos 1990, backpropagation through time), with dx_k and du_k as the cell's loops give
them from the whole gradient of s_k:

    dc_k = upstream + dx_k F,   last columns of du_k = d attend,   ds_{k-1} = upstream + du_k W + ...

and a weight's gradient is one product over the rows of all steps, dW = sum_k du_k^T s_{k-1} and
dF = sum_k dx_k^T c_k, instead of a small product and an addition to all of it at every step.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.attention.kernels.additive.cpu.reading import Reading, numbers
from regard.loops.threads import share
from regard.translation.models.recurrent.unrolled.gates import LOOPS
from regard.translation.models.recurrent.unrolled.steps import Steps

__all__ = ["Unrolled"]

EXPENSE = 8  # a number that goes through a cell takes as long as so many of an attention


class Unrolled(torch.autograd.Function):
    """(states, an LSTM's memories, a reader's contexts), each with a row for every row of `given`."""

    @staticmethod
    def forward(
        ctx: Any,
        cell: str,
        steps: Steps,
        given: Tensor,
        weight: Tensor,
        bias: Tensor,
        feed: Tensor | None,
        keys: Tensor | None,
        values: Tensor | None,
        readable: Tensor | None,
        scorer: Tensor | None,
        *first: Tensor,
    ) -> tuple[Tensor, ...]:
        def buffer(width: int) -> Tensor:
            return given.new_empty(len(given), width)

        parts, width = LOOPS[cell].parts, weight.shape[1]
        run = _Run(
            cell,
            steps,
            x=buffer(given.shape[1]),
            u=buffer(len(weight)),
            befores=tuple(buffer(width) for _ in range(parts)),
            afters=tuple(buffer(width) for _ in range(parts)),
        )
        asked: tuple[Tensor, ...] = ()
        if keys is not None and values is not None and readable is not None and scorer is not None:
            asked = buffer(keys.shape[1]), buffer(values.shape[2])
            run.reading = Reading(keys, values, readable, scorer, run.u, *asked)
        run.forward(given, weight, bias, feed, first)
        kept = (run.reading.powers, run.reading.near) if run.reading else ()
        ctx.cell, ctx.steps, ctx.first = cell, steps, len(first)
        ctx.save_for_backward(
            *(weight, feed, keys, values, readable, scorer),
            *(run.x, run.u, *run.befores, *run.afters, *asked, *kept),
        )
        return *run.afters, *asked[1:]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        weight, feed, keys, values, readable, scorer, x, u, *saved = ctx.saved_tensors
        parts = LOOPS[ctx.cell].parts
        befores, afters, asked = saved[:parts], saved[parts : 2 * parts], saved[2 * parts :]
        run = _Run(ctx.cell, ctx.steps, x, u, tuple(befores), tuple(afters))
        if asked:
            run.reading = Reading(keys, values, readable, scorer, u, *asked)
        dx, du, first = run.backward(weight, feed, upstream)
        of_keys, of_values, of_scorer = run.reading.gradients() if run.reading else (None,) * 3
        return (
            *(None, None, dx, du.t() @ befores[0], du.sum(0)),
            *(dx.t() @ asked[1] if asked else None, of_keys, of_values, None, of_scorer),
            *first[: ctx.first],
        )


class _Run:
    """The steps, over buffers with a row for every word; a reader may stand between the steps."""

    reading: Reading | None = None

    def __init__(
        self,
        cell: str,
        steps: Steps,
        x: Tensor,
        u: Tensor,
        befores: tuple[Tensor, ...],
        afters: tuple[Tensor, ...],
    ) -> None:
        self.loops, self.steps = LOOPS[cell], steps
        self.x, self.u, self.befores, self.afters = x, u, befores, afters
        self.width = befores[0].shape[1]
        self.numbers = (numbers(x), numbers(u), u.shape[1], _flat(befores), _flat(afters))

    def forward(
        self,
        given: Tensor,
        weight: Tensor,
        bias: Tensor,
        feed: Tensor | None,
        first: tuple[Tensor, ...],
    ) -> None:
        back, fed = weight.t(), None if feed is None else feed.t()
        split = self.steps.split
        x, u, states, inputs = split(self.x), split(self.u), split(self.befores[0]), split(given)
        contexts = split(self.reading.contexts) if self.reading else []
        for k in range(len(self.steps)):
            self._begin(k, first)
            torch.addmm(bias, states[k], back, out=u[k])
            if self.reading and fed is not None:
                self.reading.forward(k)
                torch.addmm(inputs[k], contexts[k], fed, out=x[k])
            else:
                x[k].copy_(inputs[k])
            self._share(self._step, k)

    def backward(
        self, weight: Tensor, feed: Tensor | None, upstream: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        """dx, du, and the gradients of the first state."""
        own = [slope.clone(memory_format=torch.contiguous_format) for slope in upstream]
        states, contexts = tuple(own[: self.loops.parts]), own[self.loops.parts :]
        first = tuple(s.new_zeros(self.steps.sizes[0], self.width) for s in states)
        dx, du = torch.empty_like(self.x), torch.empty_like(self.u)
        if self.reading:
            self.reading.start_back(du, contexts[0])
        split = self.steps.split
        fed = split(contexts[0]) if self.reading else []
        given, back, totals = split(dx), split(du), split(states[0])
        known = _flat(states), numbers(dx), numbers(du)
        ends = [(_flat(first), 0, self.steps.sizes[0])] + [
            (known[0], *end) for end in zip(self.steps.starts, self.steps.carried[1:], strict=False)
        ]
        for k in reversed(range(len(self.steps))):
            onto, start, carried = ends[k]
            shift = (start - self.steps.starts[k]) * self.width
            until = self.steps.starts[k] + carried
            self._share(partial(self._slopes, *known, onto, shift, until), k)
            if self.reading and feed is not None:
                fed[k].addmm_(given[k], feed)
                self.reading.backward(k)
            before = totals[k - 1] if k else first[0]
            before[:carried].addmm_(back[k][:carried], weight)
        return dx, du, first

    def _begin(self, k: int, first: tuple[Tensor, ...]) -> None:
        """The states before a step: those after the one before, or the first, or 0."""
        start, size, carried = self.steps.starts[k], self.steps.sizes[k], self.steps.carried[k]
        for part, (before, after) in enumerate(zip(self.befores, self.afters, strict=True)):
            if not k and first:
                before[start : start + size] = first[part]
                continue
            if carried:
                held = after.narrow(0, self.steps.starts[k - 1], carried)
                before.narrow(0, start, carried).copy_(held)
            if carried < size:
                before[start + carried : start + size] = 0

    def _share(self, call: Any, k: int) -> None:
        start, size = self.steps.starts[k], self.steps.sizes[k]
        share(call, start, start + size, EXPENSE * size * self.x.shape[1])

    def _step(self, first: int, last: int) -> None:
        self.loops.forward(first, last, *self.numbers, self.width)

    def _slopes(
        self, states: Any, dx: Any, du: Any, onto: Any, shift: int, until: int, *rows: int
    ) -> None:
        self.loops.backward(*rows, *self.numbers, states, dx, du, onto, shift, until, self.width)


def _flat(parts: tuple[Tensor, ...]) -> tuple[Any, ...]:
    return tuple(map(numbers, parts))
