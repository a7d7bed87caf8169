"""The Triton kernel for additive attention. Triton itself is loaded on the first call."""

from __future__ import annotations

import os
from importlib.util import find_spec

import torch
from torch import Tensor

from regard.attention.kernels.additive.requests import operands, refuse
from regard.attention.kernels.request import Request

STORED = (torch.float32, torch.float16, torch.bfloat16)


class Triton:
    name = "triton"

    def supports(self, request: Request, value: Tensor) -> str | None:
        if reason := refuse(request, value):
            return reason
        if value.dtype not in STORED:
            return f"it computes in float32, which is less than {value.dtype}"
        if find_spec("triton") is None:
            return "triton is not installed"
        kind = value.device.type
        if kind != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
            return f"the query is on {kind}, this kernel is for CUDA (or TRITON_INTERPRET=1)"
        return None

    def attend(self, request: Request, value: Tensor) -> Tensor:
        from regard.attention.kernels.additive.triton.operator import additive

        a, c, w, bias, rules, cap, temperature = operands(request, torch.float32)
        return additive(a, c, w, value, bias, rules, 1.0 / temperature, cap)
