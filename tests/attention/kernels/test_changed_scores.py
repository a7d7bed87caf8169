"""Scores that are changed by a subclass, an attribute or a hook: every kernel calls what they say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

import regard
from regard.attention import scores
from regard.attention.kernels.choose import KernelRefusedError

torch.manual_seed(0)
QUERY, KEY, VALUE = 0.3 * torch.randn(2, 64, 8), torch.randn(2, 300, 8), torch.randn(2, 300, 8)


class Negated(scores.Additive):
    def combine(self, query_features: Tensor, key_features: Tensor) -> Tensor:
        return -super().combine(query_features, key_features)


class Tripled(scores.General):
    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return 3 * super().forward(query, key)


class Doubled(scores.ScaledDot):
    def __call__(self, query: Tensor, key: Tensor, /) -> Tensor:
        return 2 * super().__call__(query, key)


class Flipped(scores.General):
    def factors(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, float]:
        query, key, scale = super().factors(query, key)
        return query, key, -scale


class Bounded(scores.SoftCap):
    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return 3 * super().forward(query, key)


class Module(nn.Module, scores.DotLike):
    def factors(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, float]:
        return query, key, 0.5

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return 3 * scores.DotLike.__call__(self, query, key)


def hooked(score: nn.Module) -> nn.Module:
    score.register_forward_hook(lambda module, inputs, out: 3 * out)
    return score


def fed(score: nn.Module) -> nn.Module:
    score.register_forward_pre_hook(lambda module, inputs: (inputs[0] * 2, inputs[1]))
    return score


def patched(score: Any, name: str) -> Any:
    parameter = getattr(score, name)
    setattr(score, name, lambda *given: 3 * parameter(*given))
    return score


CHANGED: dict[str, Callable[[], Any]] = {
    "combine": lambda: Negated(8, 8, 64),
    "forward": lambda: Tripled(8, 8),
    "call": Doubled,
    "module": Module,
    "cap": lambda: Bounded(scores.Additive(8, 8, 64), 2.0),
    "cap of dots": lambda: Bounded(scores.Dot(), 2.0),
    "capped": lambda: scores.SoftCap(Negated(8, 8, 64), 2.0),
    "hook of additive": lambda: hooked(scores.Additive(8, 8, 64)),
    "hook before additive": lambda: fed(scores.Additive(8, 8, 64)),
    "hook of general": lambda: hooked(scores.General(8, 8)),
    "hook of cap": lambda: hooked(scores.SoftCap(scores.Additive(8, 8, 64), 2.0)),
    "hook within cap": lambda: scores.SoftCap(hooked(scores.Additive(8, 8, 64)), 2.0),
    "attribute": lambda: patched(scores.Additive(8, 8, 64), "combine"),
    "attribute of general": lambda: patched(scores.General(8, 8), "forward"),
    # These change the parts that kernels and looks ask for.
    "factors": lambda: Flipped(8, 8),
    "weight": lambda: weight_norm(scores.Additive(8, 8, 64), "query_weight"),
}
EVERY = pytest.mark.parametrize("name", list(CHANGED))


@EVERY
def test_readings_and_looks_follow_the_call(name: str) -> None:
    score = CHANGED[name]()
    weights = torch.softmax(score(QUERY, KEY), -1)
    assert torch.allclose(regard.attend(QUERY, KEY, VALUE, score=score), weights @ VALUE, atol=1e-5)
    reading, look = regard.read(QUERY, KEY, VALUE, score=score)
    assert torch.allclose(reading, weights @ VALUE, atol=1e-5)
    with torch.no_grad():
        assert torch.allclose(look.weights(), weights, atol=1e-5)
        assert torch.allclose(look.received(), weights.sum(-2), atol=1e-4)
        assert torch.allclose(look[1].received(), weights[1].sum(-2), atol=1e-4)
    assert torch.equal(look.argmax(), weights.argmax(-1))
    with regard.kernel("blocked"):
        assert torch.allclose(
            regard.attend(QUERY, KEY, VALUE, score=score), weights @ VALUE, atol=1e-5
        )


@EVERY
def test_their_gradients_are_those_of_the_call(name: str) -> None:
    score = CHANGED[name]()
    leaves = [QUERY.clone().requires_grad_(), KEY.clone().requires_grad_()]
    leaves += list(score.parameters()) if isinstance(score, nn.Module) else []
    weights = torch.softmax(score(*leaves[:2]), -1)
    expected = torch.autograd.grad((weights @ VALUE).sin().sum(), leaves)
    reading, look = regard.read(*leaves[:2], VALUE, score=score)
    actual = torch.autograd.grad(reading.sin().sum(), leaves, retain_graph=True)
    for a, b in zip(actual, expected, strict=True):
        assert torch.allclose(a, b, atol=1e-4)
    weights = torch.softmax(score(*leaves[:2]), -1)
    expected = torch.autograd.grad(-(weights * weights.log()).sum(), leaves)
    for a, b in zip(torch.autograd.grad(look.entropy().sum(), leaves), expected, strict=True):
        assert torch.allclose(a, b, atol=1e-3)


@pytest.mark.parametrize(
    ("kernel", "name"),
    [("cpu", "combine"), ("cpu", "hook of additive"), ("sdpa", "call"), ("matmul", "forward")],
)
def test_a_pinned_kernel_refuses_them(kernel: str, name: str) -> None:
    with regard.kernel(kernel), pytest.raises(KernelRefusedError, match="methods or hooks of its"):
        regard.attend(QUERY, KEY, VALUE, score=CHANGED[name]())


def test_what_is_not_changed_keeps_the_fast_kernel() -> None:
    for score, kernel in (
        (weight_norm(scores.Additive(8, 8, 64), "query_weight"), "cpu"),
        (Flipped(8, 8), "sdpa"),
    ):
        score.requires_grad_(False)
        assert regard.explain(QUERY, KEY, score=score).kernel == kernel


def test_two_caps_are_not_mistaken_for_a_changed_score() -> None:
    twice = scores.SoftCap(scores.SoftCap(scores.Additive(8, 8, 4), 2.0), 3.0)
    refused = regard.explain(QUERY, KEY, VALUE, score=twice).refused
    assert refused["cpu"] == "SoftCap is not an additive score"
