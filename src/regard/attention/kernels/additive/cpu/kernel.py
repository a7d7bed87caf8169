"""The kernel for additive attention on a processor: neither scores nor hidden layers are stored."""

from __future__ import annotations

from math import prod
from typing import cast

from torch import Tensor

from regard.attention.kernels.additive.requests import operands, refuse, within
from regard.attention.kernels.request import Request
from regard.attention.products import widen
from regard.loops import availability as loops

FEW, ENOUGH = 8, 1 << 20  # queries, and triples of query, key and channel; measured


class Cpu:
    name = "cpu"

    def supports(self, request: Request, value: Tensor) -> str | None:
        if reason := refuse(request, value):
            return reason
        if not request.query.is_cpu:
            return f"the query is on {request.query.device.type}, this kernel is for processors"
        if not loops.are_compiled():
            return "NUMBA_DISABLE_JIT is set: its loops are not compiled"
        return None

    def pays(self, request: Request) -> bool:
        """Whether this is faster than the equations as they stand, compiling aside."""
        channels = within(request.score).d_hidden
        pairs = prod(request.frame.batch) * request.queries * request.keys
        return request.queries >= FEW and pairs * channels >= ENOUGH

    def attend(self, request: Request, value: Tensor) -> Tensor:
        from regard.attention.kernels.additive.cpu.operator import additive

        v = widen(value)
        a, c, w, bias, rules, cap, temperature = operands(request, v.dtype)
        reading = additive(a, c, w, v, bias, *rules, cap, temperature)[0]
        return cast(Tensor, reading).to(value.dtype)
