"""Answers that people train with: gradients, and the memory they take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.peaks import growth, measured
from torch import Tensor

import regard
from regard.attention import masks, normalisers, scores
from regard.attention.looks import Look, StoredLook

ANSWERS: dict[str, Callable[[Look], Tensor]] = {
    "entropy": lambda look: look.entropy(),
    "received": lambda look: look.received(),
    "received by some": lambda look: look.received(
        rows=[0, 3, 3], weights=torch.tensor([1, 2, -1.0])
    ),
    "log-normaliser": lambda look: torch.where(
        look.log_normaliser() == -torch.inf, 0.0, look.log_normaliser()
    ),
}
HOW: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"mask": masks.causal(align="end"), "normaliser": normalisers.Softmax(0.7)},
    "padding": {"mask": masks.padding([0, 3])},
    "union": {"mask": masks.band(0, 0) | masks.band(-4, 6)},
    "own score": {"score": lambda q, k: -(torch.cdist(q, k) ** 2), "mask": masks.band(1, 1)},
    "capped": {"score": scores.SoftCap(scores.Dot(), 2.0)},
    "entmax": {"normaliser": normalisers.Entmax(1.5), "mask": masks.padding([0, 3])},
}


@pytest.fixture(autouse=True)
def _small_blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.node.get_closest_marker("skipif"):  # what is measured has the blocks of a user
        monkeypatch.setattr("regard.attention.looks.weights.BLOCK", 20)


def draw() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(1)
    shapes = ((2, 4, 3), (2, 5, 3), (4, 5))
    query, key, bias = (torch.randn(s, dtype=torch.float64).requires_grad_() for s in shapes)
    return query, key, bias


@pytest.mark.parametrize("options", HOW.values(), ids=HOW)
@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_the_gradients_are_right(answer: Callable[[Look], Tensor], options: dict[str, Any]) -> None:
    if answer is ANSWERS["log-normaliser"] and isinstance(
        options.get("normaliser"), normalisers.Entmax
    ):
        with pytest.raises(TypeError, match="softmax"):
            regard.look(*draw()[:2], **options).log_normaliser()
        return

    def answer_of(query: Tensor, key: Tensor, bias: Tensor) -> Tensor:
        return answer(regard.look(query, key, bias=bias, **options))

    assert torch.autograd.gradcheck(answer_of, draw(), fast_mode=True)


@pytest.mark.parametrize("name", ["entropy", "received"])
def test_a_gradient_of_the_gradient(name: str) -> None:
    query, key, _ = draw()
    assert torch.autograd.gradgradcheck(
        lambda q, k: getattr(regard.look(q, k), name)().square(), (query, key), fast_mode=True
    )


def test_a_memory_of_itself_gets_its_gradient_once() -> None:
    vectors = draw()[0]
    actual = torch.autograd.grad(regard.look(vectors, vectors).entropy().sum(), vectors)[0]
    weights = regard.look(vectors, vectors).weights()
    exact = torch.autograd.grad(-(weights * weights.log()).sum(), vectors)[0]
    assert torch.allclose(actual, exact)


@pytest.mark.parametrize("power", [1, 2])
def test_keys_made_from_the_queries_pass_their_gradient_on_once(power: int) -> None:
    vectors = draw()[0]

    def entropy(score: Callable[[Tensor, Tensor], Tensor] | None) -> Tensor:
        query = vectors * 1.0
        entropy = regard.look(query, query.sin() + query**2, score=score).entropy().sum()
        for _ in range(power - 1):
            (gradient,) = torch.autograd.grad(entropy, vectors, create_graph=True)
            entropy = gradient.square().sum()
        return torch.autograd.grad(entropy, vectors)[0]

    assert torch.allclose(entropy(None), entropy(lambda q, k: q @ k.mT / 3**0.5))


def test_parameters_get_their_gradients() -> None:
    query, key, _ = draw()
    score = scores.Additive(3, 3, 4).double()
    look = regard.look(query.detach(), key.detach(), score=score)
    actual = torch.autograd.grad(look.entropy().sum(), list(score.parameters()))
    weights = look.weights()
    exact = torch.autograd.grad(-(weights * weights.log()).sum(), list(score.parameters()))
    for a, b in zip(actual, exact, strict=True):
        assert torch.allclose(a, b)


def test_parameters_hidden_in_a_function_get_theirs() -> None:
    query, key, _ = draw()
    weight = torch.ones(3, dtype=torch.float64, requires_grad=True)
    look = regard.look(query.detach(), key.detach(), score=lambda q, k: (q * weight) @ k.mT)
    look.received().square().sum().backward()
    assert weight.grad is not None
    assert weight.grad.any()


def test_so_do_those_of_a_normaliser_of_the_callers() -> None:
    class Sharpened(normalisers.Normaliser):
        power = torch.ones((), dtype=torch.float64, requires_grad=True)

        def rows(self, scores: Tensor) -> Tensor:
            return torch.softmax(scores * self.power, -1)

    query, key, _ = draw()
    look = regard.look(query, key, normaliser=Sharpened())
    (gradient,) = torch.autograd.grad(look.entropy().sum(), Sharpened.power)
    weights = look.weights()
    (exact,) = torch.autograd.grad(-(weights * weights.log()).sum(), Sharpened.power)
    assert torch.allclose(gradient, exact)


def test_the_weights_of_received_get_theirs() -> None:
    query, key, _ = draw()
    look = regard.look(query.detach(), key.detach())
    shares = torch.rand(2, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda shares: look.received(weights=shares), shares)


def test_stored_weights_and_the_mean_of_heads_can_be_trained_with() -> None:
    query, key, _ = draw()
    weights = regard.look(query, key).weights().detach().requires_grad_()
    assert torch.autograd.gradcheck(lambda w: StoredLook(w).entropy(), weights)
    assert torch.autograd.gradcheck(
        lambda q: regard.look(q, key.detach()).mean_heads().entropy(), query
    )


def test_no_gradient_is_kept_where_none_is_wanted() -> None:
    query, key, _ = draw()
    with torch.no_grad():
        assert not regard.look(query, key).entropy().requires_grad
    module = scores.General(3, 3).double().requires_grad_(False)
    assert not regard.look(query.detach(), key.detach(), score=module).entropy().requires_grad


def _ask(name: str, length: int, learning: bool) -> None:
    query, key = (torch.randn(1, length, 16, requires_grad=learning) for _ in range(2))
    look = regard.look(query, key, mask=masks.causal(align="start"))
    answers = {"map": lambda: look.map(64, 64), "top": lambda: look.top(4)[0]}
    answer = answers.get(name, getattr(look, name))()
    if learning:
        answer.sum().backward()


@measured
@pytest.mark.parametrize(
    ("name", "length", "learning"),
    [
        ("received", 16384, False),
        ("entropy", 16384, False),
        ("top", 16384, False),
        ("map", 16384, False),
        ("entropy", 8192, True),
        ("received", 8192, True),
    ],
)
def test_no_answer_holds_the_matrix(name: str, length: int, learning: bool) -> None:
    matrix = length * length * 4 / 2**20
    grown = growth(lambda: _ask(name, 200, learning), lambda: _ask(name, length, learning))
    assert grown < 0.03 * matrix + (80 if learning else 0)


@pytest.mark.parametrize("temperature", [1.0, 0.25])
def test_the_gradient_of_the_log_normaliser_is_the_softmax_however_large_the_scores_are(
    temperature: float,
) -> None:
    """A row around 1e8, where numbers are 8 apart in float32; one of the lowest number alone."""
    bias = torch.randn(3, 5, generator=torch.Generator().manual_seed(1))
    bias[1] = 1e8 + 8 * torch.arange(5.0)
    bias[2] = torch.finfo(torch.float32).min
    bias.requires_grad_()
    look = regard.look(
        torch.zeros(3, 2),
        torch.zeros(5, 2),
        bias=bias,
        normaliser=normalisers.Softmax(temperature),
    )
    log_normaliser = look.log_normaliser()
    assert log_normaliser.isfinite().all()
    (slope,) = torch.autograd.grad(log_normaliser.sum(), bias)
    assert torch.allclose(slope * temperature, look.weights(), atol=1e-6)
