"""One table of requests that every kernel must answer as the float64 reference does."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention import masks, normalisers, scores

HALF, DOUBLE, SINGLE, BRAIN = torch.float16, torch.float64, torch.float32, torch.bfloat16


@dataclass(frozen=True)
class Case:
    """A request by its shapes. `dots`: whether its weights are a softmax over dot products."""

    name: str
    query: tuple[int, ...] = (2, 3, 5, 8)
    key: tuple[int, ...] = (2, 3, 7, 8)
    d_value: int = 4
    value_batch: tuple[int, ...] | None = None
    score: Callable[[], Any] | None = None
    normaliser: Any = None
    mask: Any = None
    bias: Callable[[], Tensor] | None = None
    bias_dtype: torch.dtype | None = None  # that of the rest by default
    edit: Callable[[dict[str, Tensor]], None] | None = None  # after the tensors are drawn
    dtype: torch.dtype = SINGLE
    size: float = 1.0  # factor on query and key: scores grow with its square
    strided: bool = False
    slack: float = 1.0  # factor on the tolerance, where the scores' own rounding shows
    dots: bool = True
    additive: bool = False  # whether its weights are a softmax over additive scores
    spans: bool = (
        False  # whether it is a softmax over dot products under a mask of spans or documents
    )
    copies: bool = False  # fused attention would have to copy an axis
    extra: dict[str, Any] = field(default_factory=dict)

    def build(self) -> Built:
        torch.manual_seed(sum(map(ord, self.name)))
        value_batch = self.key[:-2] if self.value_batch is None else self.value_batch
        tensors = {
            "query": self._draw(self.query) * self.size,
            "key": self._draw(self.key) * self.size,
            "value": self._draw((*value_batch, self.key[-2], self.d_value)),
        }
        if self.bias is not None:
            tensors["bias"] = self.bias().to(self.bias_dtype or self.dtype)
        if self.edit is not None:
            self.edit(tensors)
        score = self.score() if self.score is not None else None
        return Built(self, {name: t.detach() for name, t in tensors.items()}, score)

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        if not self.strided:
            return torch.randn(shape).to(self.dtype)
        # Every other entry of a wider tensor, its last two axes swapped.
        wide = torch.randn(*shape[:-2], shape[-1], 2 * shape[-2]).to(self.dtype)
        return wide[..., ::2].mT


@dataclass(frozen=True)
class Built:
    case: Case
    tensors: dict[str, Tensor]
    score: Any

    def arguments(self, dtype: torch.dtype) -> dict[str, Any]:
        """The arguments of attend(), every tensor a leaf that wants its gradient."""
        own_options = {"bias": self.case.bias_dtype} if dtype == self.case.dtype else {}
        leaves = {n: self._leaf(t, own_options.get(n) or dtype) for n, t in self.tensors.items()}
        score = copy.deepcopy(self.score)
        if isinstance(score, nn.Module):
            score = score.to(dtype)
        return {
            **leaves,
            "score": score,
            "mask": self.case.mask,
            "normaliser": self.case.normaliser,
        }

    @staticmethod
    def _leaf(tensor: Tensor, dtype: torch.dtype) -> Tensor:
        same = tensor if tensor.dtype == dtype else tensor.to(dtype)
        return same.detach().requires_grad_()


def _random_mask(*shape: int) -> Tensor:
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(7)) > 0.4
    mask[..., 0, :] = False  # a row with nothing to read
    return mask


def _cut(*shape: int) -> Tensor:
    bias = torch.randn(shape)
    return bias.masked_fill(torch.rand(shape) < 0.3, -torch.inf)


def _lowest(dtype: torch.dtype) -> Tensor:
    """A mask written as a bias of the lowest number: two keys, and all keys of one query."""
    bias = torch.zeros(5, 7)
    bias[:, 5:], bias[1] = torch.finfo(dtype).min, torch.finfo(dtype).min
    return bias


def _zero_keys(tensors: dict[str, Tensor]) -> None:
    tensors["key"][..., 4:, :] = 0.0


CAUSAL_END, CAUSAL_START = masks.causal(align="end"), masks.causal(align="start")

CASES = [
    Case("plain"),
    Case("float64", dtype=DOUBLE),
    Case("half", dtype=HALF),
    Case("bfloat16", dtype=BRAIN),
    Case("bfloat16 masked", dtype=BRAIN, mask=_random_mask(2, 1, 5, 7)),
    Case("no batch axes", query=(5, 8), key=(7, 8)),
    Case("one batch axis", query=(3, 5, 8), key=(3, 7, 8)),
    Case("odd sizes", query=(3, 1, 13, 7), key=(3, 1, 17, 7), d_value=5),
    Case("past one block", query=(1, 1, 130, 16), key=(1, 1, 150, 16), mask=CAUSAL_END, spans=True),
    Case("one of everything", query=(1, 1, 1, 1), key=(1, 1, 1, 1), d_value=1),
    Case("one query", query=(4, 2, 1, 8), key=(4, 2, 9, 8)),
    Case("no queries", query=(2, 0, 8), key=(2, 7, 8), dots=False),
    Case("no keys", query=(2, 5, 8), key=(2, 0, 8), dots=False),
    Case("no batch", query=(0, 5, 8), key=(0, 7, 8), dots=False),
    Case("no width", query=(2, 5, 0), key=(2, 7, 0), dots=False),
    Case("no value width", d_value=0, dots=False),
    Case("wide value", d_value=33),
    Case("strided", strided=True),
    Case("strided bfloat16", strided=True, dtype=BRAIN),
    Case("large scores", size=60.0, slack=300.0),
    Case("large scores masked", size=60.0, slack=300.0, mask=_random_mask(5, 7)),
    Case("large scores float64", size=100.0, dtype=DOUBLE, slack=300.0),
    Case("causal start", mask=CAUSAL_START),
    Case("causal start, few keys", query=(2, 3, 7, 8), key=(2, 3, 4, 8), mask=CAUSAL_START),
    Case("causal end", mask=CAUSAL_END, spans=True),
    Case("causal end, few keys", query=(2, 3, 7, 8), key=(2, 3, 4, 8), mask=CAUSAL_END, spans=True),
    Case("causal square", query=(2, 3, 6, 8), key=(2, 3, 6, 8), mask=CAUSAL_END),
    Case("padding", mask=masks.padding([7, 3]), spans=True),
    Case("padding of everything", mask=masks.padding([0, 4]), spans=True),
    Case("padding and causal", mask=masks.padding([2, 6]) & CAUSAL_START, spans=True),
    Case("band", mask=masks.band(1, 2), spans=True),
    Case(
        "documents",
        mask=masks.documents(torch.tensor([0, 0, 1, 1, 2]), torch.tensor([0, 1, 1, 1, 0, 3, 1])),
        spans=True,
    ),
    Case("packed", mask=masks.packed([2, 0, 3], [3, 1, 3]), spans=True),
    Case(
        "packed, none to read",
        mask=masks.packed([2, 3], [7, 0]) & masks.padding([7, 3]),
        spans=True,
    ),
    Case(
        "packed and causal",
        query=(2, 3, 7, 8),
        mask=masks.packed([3, 4]) & CAUSAL_START,
        spans=True,
    ),
    Case("either mask", mask=masks.band(0, 0) | _random_mask(2, 3, 5, 7)),
    Case("boolean", mask=_random_mask(2, 3, 5, 7)),
    Case("boolean of keys", mask=torch.tensor([True, False, True, True, False, True, True])),
    Case("boolean adds a batch axis", query=(5, 8), key=(7, 8), mask=_random_mask(3, 5, 7)),
    Case("a function of positions", mask=lambda row, column: (row + column) % 3 > 0),
    Case("bias", bias=lambda: torch.randn(2, 3, 5, 7)),
    Case("bias of keys", bias=lambda: torch.randn(7)),
    Case("bias of heads", bias=lambda: torch.randn(3, 1, 1)),
    Case("bias cuts", bias=lambda: _cut(3, 5, 7)),
    Case("bias cuts all", bias=lambda: torch.full((1, 7), -torch.inf)),
    Case("bias and mask", bias=lambda: _cut(5, 7), mask=masks.padding([0, 5])),
    Case("batch broadcasts", query=(4, 1, 5, 8), key=(3, 7, 8)),
    Case("shared keys", query=(4, 3, 5, 8), key=(1, 1, 7, 8)),
    Case("shared queries", query=(5, 8), key=(4, 3, 7, 8)),
    Case("shared values", value_batch=(1, 1)),
    Case("grouped", query=(2, 3, 4, 5, 8), key=(2, 3, 1, 7, 8)),
    Case(
        "grouped causal",
        query=(2, 3, 4, 5, 8),
        key=(2, 3, 1, 7, 8),
        mask=CAUSAL_END & masks.padding([3, 6]),
        spans=True,
    ),
    Case("inner axis shared", query=(2, 3, 4, 5, 8), key=(2, 1, 4, 7, 8), copies=True),
    Case("dot", score=scores.Dot, size=0.5),
    Case("scaled", score=lambda: scores.ScaledDot(0.1)),
    Case("scaled below zero", score=lambda: scores.ScaledDot(-0.7), mask=CAUSAL_START),
    Case(
        "scaled below zero, half",
        score=lambda: scores.ScaledDot(-1.0),
        mask=CAUSAL_START,
        dtype=HALF,
    ),
    Case("scaled below zero, bias", score=lambda: scores.ScaledDot(-1.0), bias=lambda: _cut(5, 7)),
    Case(
        "scaled by zero, half",
        query=(2, 3, 64, 31),
        key=(2, 3, 70, 31),
        score=lambda: scores.ScaledDot(0.0),
        dtype=HALF,
    ),
    Case("cosine", score=lambda: scores.Cosine(5.0)),
    Case("cosine, half", score=lambda: scores.Cosine(5.0), dtype=HALF),
    Case(
        "cosine of zeros, half",
        score=lambda: scores.Cosine(5.0),
        dtype=HALF,
        mask=masks.padding([7, 3]),
        edit=_zero_keys,
        spans=True,
    ),
    Case("cosine of long vectors, half", score=lambda: scores.Cosine(5.0), dtype=HALF, size=1e4),
    Case("above the largest half", score=scores.Dot, dtype=HALF, size=200.0, slack=3.0),
    Case("general", key=(2, 3, 7, 6), score=lambda: scores.General(8, 6)),
    Case("general, few keys", key=(2, 3, 2, 6), score=lambda: scores.General(8, 6)),
    Case("general of heads", key=(2, 3, 7, 6), score=lambda: scores.General(8, 6, heads=3)),
    Case("temperature", normaliser=normalisers.Softmax(0.5), bias=lambda: torch.randn(5, 7)),
    Case(
        "temperature of a rounded bias",
        normaliser=normalisers.Softmax(0.3),
        bias=lambda: 4 * torch.randn(5, 7),
        bias_dtype=BRAIN,
        slack=3e3,  # of the bias' own gradient
    ),
    Case("lowest bias", bias=lambda: _lowest(SINGLE)),
    Case("lowest bias, cold", bias=lambda: _lowest(SINGLE), normaliser=normalisers.Softmax(0.5)),
    Case(
        "lowest bias, half, cold",
        bias=lambda: _lowest(HALF),
        normaliser=normalisers.Softmax(0.5),
        dtype=HALF,
        size=0.0,
    ),
    Case(
        "lowest bias of float32, half",
        bias=lambda: _lowest(SINGLE),
        bias_dtype=SINGLE,
        dtype=HALF,
        size=1e-2,
    ),
    Case(
        "lowest bias, additive, cold",
        bias=lambda: _lowest(SINGLE),
        normaliser=normalisers.Softmax(0.5),
        score=lambda: scores.Additive(8, 8, 9),
        dots=False,
        additive=True,
    ),
    Case(
        "additive",
        key=(2, 3, 7, 6),
        score=lambda: scores.Additive(8, 6, 9),
        dots=False,
        additive=True,
    ),
    Case(
        "additive of heads",
        key=(2, 3, 7, 6),
        score=lambda: scores.Additive(8, 6, 9, bias=True, heads=3),
        mask=_random_mask(5, 7),
        dots=False,
        additive=True,
    ),
    Case("capped", score=lambda: scores.SoftCap(scores.Dot(), 2.0), dots=False),
    Case("own score", score=lambda: lambda q, k: -torch.cdist(q, k), dots=False),
    Case("sparsemax", normaliser=normalisers.Sparsemax(), mask=_random_mask(5, 7), dots=False),
    Case("entmax", normaliser=normalisers.Entmax(1.3), mask=_random_mask(5, 7), dots=False),
    Case("hard", normaliser=normalisers.Hard(), dots=False),
    Case("identity", normaliser=normalisers.Identity(), mask=_random_mask(5, 7), dots=False),
    Case("own normaliser", normaliser=torch.sigmoid, mask=_random_mask(5, 7), dots=False),
]
