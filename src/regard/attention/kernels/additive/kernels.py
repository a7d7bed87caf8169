"""The kernel for additive attention on a processor: neither scores nor hidden layers are stored.

Numba itself is loaded on the first call.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import reduce
from math import prod
from operator import and_
from typing import cast

import torch
from torch import Tensor

from regard.attention.kernels.additive.requests import (
    additive_objection,
    is_written_out,
    joint_spans,
    operands,
    rules_of,
    without_exact_bounds,
)
from regard.attention.kernels.additive.spans import Spans
from regard.attention.kernels.blocked import in_blocks, spans_of
from regard.attention.kernels.recomputing import Blocks, Span
from regard.attention.kernels.request import Request
from regard.attention.masks import Given, Mask
from regard.attention.masks.mask import pick
from regard.attention.products import widen
from regard.attention.scores import prepare
from regard.loops.availability import are_compiled, hooks_saved_tensors, transformed
from regard.loops.preparing import Preparation

FEW, ENOUGH = 4, 1 << 19  # queries, and triples of query, key and channel; measured
ROOM = 1 << 22  # booleans held at a time
# The loops in each precision. Their module imports the compiler, so it is named here.
LOOPS = {
    dtype: Preparation("regard.attention.kernels.additive.cpu.preparation", name)
    for dtype, name in ((torch.float32, "float32"), (torch.float64, "float64"))
}


_waits = ContextVar("regard_waits", default=False)


@contextmanager
def waiting_for_loops() -> Iterator[None]:
    """Inside, calls that the loops will serve wait for them, so that no later call is served otherwise."""
    token = _waits.set(True)
    try:
        yield
    finally:
        _waits.reset(token)


class Cpu:
    name = "cpu"

    def objection(self, request: Request, value: Tensor) -> str | None:
        if objection := additive_objection(request, value):
            return objection
        if not request.query.is_cpu:
            return f"the query is on {request.query.device.type}, this kernel is for processors"
        if not are_compiled():
            return "NUMBA_DISABLE_JIT is set: its loops are not compiled"
        return None

    def is_chosen(self, request: Request, value: Tensor) -> bool:
        """Whether this serves where nothing is pinned."""
        if not self.pays(request) or self.objection(request, value):
            return False
        return self.is_ready(request, value)

    def is_ready(self, request: Request, value: Tensor) -> bool:
        """Whether its loops are compiled; if not, another process compiles them.

        Calls that must all be computed alike wait for them: those of a training, checkpointed or deterministic ones.
        """
        if request.is_traced:  # compiling loops is little beside it
            return True
        loops = LOOPS[widen(value).dtype]
        waits = _waits.get() or torch.are_deterministic_algorithms_enabled()
        if waits or hooks_saved_tensors():
            loops.wait()
        return loops.ready()

    def pays(self, request: Request) -> bool:
        """Whether this is faster than the equations as they stand, compiling aside."""
        return request.queries >= FEW and request.size >= ENOUGH

    def attend(self, request: Request, value: Tensor) -> Tensor:
        if request.queries * request.keys > ROOM and not transformed():
            has_function = request.bias_function is not None
            if has_function or is_written_out(request.mask, request.frame):
                return self._attend_in_blocks(request, value)
        return self._attend(request, value)

    def _attend_in_blocks(self, request: Request, value: Tensor) -> Tensor:
        """What a function says of queries and keys, for some queries at a time, and again in the backward pass."""
        score, key = prepare(request.score, widen(request.key))
        frame, has_function = request.frame, request.bias_function is not None
        mask = request.mask if isinstance(request.mask, Mask) else None
        inexact_rules, spans = without_exact_bounds(mask, frame), joint_spans(mask, frame)

        def block(
            query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, span: Span
        ) -> Tensor:
            rows, columns = span.positions(frame.device)
            has_runs, rules = isinstance(span.columns, Tensor), inexact_rules
            if has_runs and mask is not None:  # which spans between keys do not tell
                rules = mask.rules()
            rules = [Given(rule.window(rows, columns, frame)) for rule in rules]
            if isinstance(request.mask, Tensor):
                rules = [Given(pick(pick(request.mask, -2, rows), -1, columns))]
            if spans is not None and not has_runs:
                low, high = (pick(side, -1, rows) - columns[0] for side in spans)
                rules.append(Spans(low, high))
            section = replace(
                request,
                query=query,
                key=key,
                score=score,
                bias=request.bias_of(rows, columns) if has_function else bias,
                bias_function=None,
                mask=reduce(and_, rules) if rules else None,
                frame=frame._replace(queries=len(rows), keys=len(columns)),
            )
            return self._attend(section, value)

        planes = prod(request.corner().shape[:-2]) if has_function else 1
        blocks = Blocks(block, spans_of(request, ROOM // (planes * request.keys)))
        return in_blocks(request, (request.query, key, value, request.bias), blocks)

    def _attend(self, request: Request, value: Tensor) -> Tensor:
        from regard.attention.kernels.additive.cpu.operator import additive

        v = widen(value)
        a, c, w, bias, cap, temperature = operands(request, v.dtype)
        rules = rules_of(request.mask, request.frame)
        reading = additive(a, c, w, v, bias, *rules, cap, temperature)[0]
        return cast(Tensor, reading).to(value.dtype)
