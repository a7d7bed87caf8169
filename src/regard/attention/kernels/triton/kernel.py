"""What the Triton kernel serves. Triton itself is loaded on the first call."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import cast

import torch
from torch import Tensor

from regard.attention.kernels.request import Request
from regard.attention.kernels.rules import rules_of
from regard.attention.normalisers import Softmax
from regard.attention.scores import Additive, SoftCap
from regard.attention.scores.prepare import PreparedAdditive

STORED = (torch.float32, torch.float16, torch.bfloat16)


class Triton:
    name = "triton"

    def supports(self, request: Request, value: Tensor) -> str | None:
        score = _within(request.score)
        if not isinstance(score, Additive | PreparedAdditive):
            return f"{_name(score)} is not an additive score"
        if type(request.normaliser) is not Softmax:
            return f"{_name(request.normaliser)} is not a softmax"
        if request.dropout:
            return "it has no dropout"
        if value.dtype not in STORED:
            return f"it computes in float32, which is less than {value.dtype}"
        if not all(t.numel() for t in (request.query, request.key, value)) or not _hidden(score):
            return "an axis has size 0"
        return _missing(value.device)

    def attend(self, request: Request, value: Tensor) -> Tensor:
        from regard.attention.kernels.triton.operator import additive

        score, key = _within(request.score), request.key.float()
        if isinstance(score, PreparedAdditive):
            parts, features = score.score, key
        else:
            parts = cast(Additive, score)
            features = parts.key_features(key)
        return additive(
            parts.query_features(request.query.float()).float(),
            features.float(),
            parts.weight.float(),
            value,
            request.bias,
            rules_of(request.mask, request.frame),
            1.0 / cast(Softmax, request.normaliser).temperature,
            request.score.cap if isinstance(request.score, SoftCap) else 0.0,
        )


def _within(score: object) -> object:
    return score.score if isinstance(score, SoftCap) else score


def _hidden(score: Additive | PreparedAdditive) -> int:
    return score.score.d_hidden if isinstance(score, PreparedAdditive) else score.d_hidden


def _missing(device: torch.device) -> str | None:
    if find_spec("triton") is None:
        return "triton is not installed"
    if device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        return f"the query is on {device.type}, this kernel is for CUDA (or TRITON_INTERPRET=1)"
    return None


def _name(part: object) -> str:
    return getattr(part, "__name__", type(part).__name__)
