"""The Triton kernel for additive attention. Triton itself is loaded on the first call."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import cast

import torch
from torch import Tensor

from regard.attention.kernels.additive.requests import cap_of, features, refuse, within
from regard.attention.kernels.biases import fitted
from regard.attention.kernels.request import Request
from regard.attention.kernels.rules import rules_of
from regard.attention.normalisers import Softmax

STORED = (torch.float32, torch.float16, torch.bfloat16)


class Triton:
    name = "triton"

    def supports(self, request: Request, value: Tensor) -> str | None:
        if reason := refuse(request, value):
            return reason
        if value.dtype not in STORED:
            return f"it computes in float32, which is less than {value.dtype}"
        return _missing(value.device)

    def attend(self, request: Request, value: Tensor) -> Tensor:
        from regard.attention.kernels.additive.triton.operator import additive

        bias, temperature = request.bias, cast(Softmax, request.normaliser).temperature
        a, c, w = features(within(request.score), request.query.float(), request.key.float())
        return additive(
            a.float(),
            c.float(),
            w.float(),
            value,
            None if bias is None else fitted(bias, torch.float32),
            rules_of(request.mask, request.frame),
            1.0 / temperature,
            cap_of(request.score),
        )


def _missing(device: torch.device) -> str | None:
    if find_spec("triton") is None:
        return "triton is not installed"
    if device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        return f"the query is on {device.type}, this kernel is for CUDA (or TRITON_INTERPRET=1)"
    return None
