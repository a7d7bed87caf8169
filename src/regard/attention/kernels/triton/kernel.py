"""Attention on a GPU by Triton: additive scores, and dot products under a mask, of which neither is stored.

Triton itself is loaded on the first call.
"""

import os
from collections.abc import Callable, Hashable
from functools import lru_cache
from importlib.util import find_spec
from typing import TypeVar

import torch
from torch import Tensor

from regard.attention.kernels.additive.requests import (
    additive_objection,
    is_written_out,
    operands,
    rules_of,
)
from regard.attention.kernels.dots import dots_objection, factors
from regard.attention.kernels.request import Request
from regard.attention.kernels.sdpa import is_triangle
from regard.attention.masks import Mask
from regard.attention.masks.layout import KEPT
from regard.attention.products import HALVES, product_dtype
from regard.attention.scores.score import is_dots, pairwise
from regard.loops.availability import differentiated, transformed

Answer = TypeVar("Answer")
STORED = (torch.float32, torch.float16, torch.bfloat16)
LEAST = (8, 0)  # whose matrix units multiply numbers of 19 bits, three times for float32
WIDEST = 128  # of vectors whose dot products a tile holds
# Pairs of all heads from which masked dot products are faster here than under a mask that is kept as booleans.
PAIRS, HALF_PAIRS = 1 << 23, 1 << 26
COUNTED = 1 << 31  # numbers of an entry that its kernels can address
WRITTEN = 1 << 24  # queries x keys of a mask that is too large to write out


class Triton:
    name = "triton"

    def objection(self, request: Request, value: Tensor) -> str | None:
        objection = (
            _dots_objection(request, value)
            if is_dots(request.score)
            else additive_objection(request, value)
        )
        if objection:
            return objection
        if _numbers(request, value) >= COUNTED:
            return "a batch entry has more numbers than 32 bits count"
        if value.dtype not in STORED:
            return f"it computes in float32, which is less than {value.dtype}"
        if find_spec("triton") is None:
            return "triton is not installed"
        kind = value.device.type
        if kind != "cuda" and not _interpreted():
            return f"the query is on {kind}, this kernel is for CUDA (or TRITON_INTERPRET=1)"
        if kind == "cuda" and _capability(value.device) < LEAST:
            return "the GPU has a compute capability below 8.0"
        return None

    def is_chosen(self, request: Request, value: Tensor) -> bool:
        """Whether this serves where nothing is pinned."""
        able = self.pays(request) and not request.is_traced and not _writes_planes(request)
        return able and self.objection(request, value) is None

    def pays(self, request: Request) -> bool:
        """Whether this is faster than the equations as they stand, or than a mask that is written out."""
        if not is_dots(request.score):
            return request.is_large
        pairs = HALF_PAIRS if product_dtype(request.query) in HALVES else PAIRS
        # The booleans of a larger mask would be written again in each call.
        return request.pairs >= pairs or request.queries * request.keys > KEPT

    def attend(self, request: Request, value: Tensor) -> Tensor:
        return _dots(request, value) if is_dots(request.score) else _additive(request, value)


def _additive(request: Request, value: Tensor) -> Tensor:
    from regard.attention.kernels.triton.operator import additive, readable_of

    mask, frame = request.mask, request.frame
    readable = _once(request, "readable", lambda: readable_of(rules_of(mask, frame), frame))
    a, c, w, bias, cap, temperature = operands(request, torch.float32)
    reading = additive(a, c, w, value.float(), bias, readable, 1.0 / temperature, cap)
    return reading.to(value.dtype)


def _dots(request: Request, value: Tensor) -> Tensor:
    from regard.attention.kernels.triton.products import dots, runs_of
    from regard.attention.kernels.triton.sizes import of_dots

    mask, frame = request.mask, request.frame
    query, key, scale = factors(request)
    dtype = product_dtype(query)
    if _interpreted() and dtype == torch.bfloat16:  # which the interpreter cannot multiply
        dtype = torch.float32
    tiles = of_dots(query.shape[-1], value.shape[-1], dtype.itemsize)
    runs = _once(request, tiles, lambda: runs_of(rules_of(mask, frame), frame, tiles))
    reading = dots(query.to(dtype), key.to(dtype), value.to(dtype), runs, scale)
    return reading.to(product_dtype(value))


def _numbers(request: Request, value: Tensor) -> int:
    """The numbers of the longest side of a batch entry."""
    score, vectors = pairwise(request.score), request.query.shape[-1]
    width = vectors if score is None else max(vectors, score.pair_width)
    return max(request.queries, request.keys) * max(width, value.shape[-1])


def _is_written(request: Request) -> bool:
    return _once(request, "written out", lambda: is_written_out(request.mask, request.frame))


def _writes_planes(request: Request) -> bool:
    """Whether a rule or a bias by positions would become a large matrix."""
    if request.queries * request.keys < WRITTEN:
        return False
    return request.bias_function is not None or _is_written(request)


def _once(request: Request, question: Hashable, answer: Callable[[], Answer]) -> Answer:
    """An answer about the mask, worked out once for all layers that share it."""
    return answer() if request.layout is None else request.layout.once(question, answer)


def _interpreted() -> bool:
    return os.environ.get("TRITON_INTERPRET") == "1"


@lru_cache
def _capability(device: torch.device) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device) if torch.cuda.is_available() else LEAST


def _dots_objection(request: Request, value: Tensor) -> str | None:
    """Why these dot products are left to other kernels."""
    if objection := dots_objection(request, value):
        return objection
    if request.has_bias:
        return "it adds no bias to dot products"
    if not isinstance(request.mask, Mask):
        return "it serves dot products under a mask of regard.masks alone"
    if is_triangle(request):
        return "torch's fused attention makes this triangle by itself"
    if _is_written(request):
        return "the mask is neither spans of keys nor documents"
    if request.dropout:
        return "it has no dropout"
    if transformed() or differentiated():
        return "torch.compile and torch.func need the operations as they are"
    if max(request.query.shape[-1], value.shape[-1]) > WIDEST:
        return f"its vectors are wider than {WIDEST}"
    return None
