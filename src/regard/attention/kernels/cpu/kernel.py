"""The kernel for additive attention on a processor: neither scores nor hidden layers are stored."""

from __future__ import annotations

from math import prod
from typing import cast

import torch
from torch import Tensor

from regard.attention.kernels import loops
from regard.attention.kernels.request import Request
from regard.attention.kernels.rules import rules_of
from regard.attention.normalisers import Softmax
from regard.attention.scores import Additive, SoftCap
from regard.attention.scores.prepare import PreparedAdditive

FEW, ENOUGH = 8, 1 << 20  # queries, and triples of query, key and channel; measured
HALVES = (torch.float16, torch.bfloat16)


class Cpu:
    name = "cpu"

    def supports(self, request: Request, value: Tensor) -> str | None:
        score = _within(request.score)
        if not isinstance(score, Additive | PreparedAdditive):
            return f"{_name(score)} is not an additive score"
        if type(request.normaliser) is not Softmax:
            return f"{_name(request.normaliser)} is not a softmax"
        if not request.query.is_cpu:
            return f"the query is on {request.query.device.type}, this kernel is for processors"
        if request.dropout:
            return "it has no dropout"
        if not loops.are_compiled():
            return "NUMBA_DISABLE_JIT is set: its loops are not compiled"
        sizes = (request.query, request.key, value)
        if not all(tensor.numel() for tensor in sizes) or not _additive(score).weight.numel():
            return "an axis has size 0"
        return None

    def pays(self, request: Request) -> bool:
        """Whether this is faster than the equations as they stand, compiling aside."""
        score = _additive(_within(request.score))
        pairs = prod(request.frame.batch) * request.queries * request.keys
        return request.queries >= FEW and pairs * score.weight.shape[-1] >= ENOUGH

    def attend(self, request: Request, value: Tensor) -> Tensor:
        from regard.attention.kernels.cpu.operator import additive

        score = _within(request.score)
        parts = _additive(score)
        query, key = _wide(request.query), _wide(request.key)
        a = parts.query_features(query)
        c = key if isinstance(score, PreparedAdditive) else parts.key_features(key)
        w, v, bias = parts.weight, _wide(value), request.bias
        dtype = v.dtype
        rules = rules_of(request.mask, request.frame)
        cap = request.score.cap if isinstance(request.score, SoftCap) else 0.0
        reading = additive(
            a.to(dtype),
            c.to(dtype),
            w.to(dtype),
            v,
            None if bias is None else bias.to(dtype),
            rules.low,
            rules.high,
            rules.asking,
            rules.stored,
            rules.mask,
            cap,
            request.normaliser.temperature,  # type: ignore[attr-defined]
        )[0]
        return cast(Tensor, reading).to(value.dtype)


def _within(score: object) -> object:
    return score.score if isinstance(score, SoftCap) else score


def _additive(score: object) -> Additive:
    return score.score if isinstance(score, PreparedAdditive) else score  # type: ignore[return-value]


def _wide(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in HALVES else tensor


def _name(part: object) -> str:
    return getattr(part, "__name__", type(part).__name__)
