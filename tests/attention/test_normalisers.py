"""Normalisers: their defining problems, a second algorithm for each, and other implementations."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from regard.attention.normalisers import Entmax, Hard, Identity, Softmax, Sparsemax

SHAPES = [(3, 1), (4, 6), (2, 3, 40)]


def draw(*shape: int, size: float = 1.0) -> Tensor:
    torch.manual_seed(0)
    return (size * torch.randn(shape, dtype=torch.float64)).requires_grad_()


def entmax_by_sorting(scores: Tensor) -> Tensor:
    """1.5-entmax exactly: Peters et al. 2019, algorithm 2, the threshold of each support size."""
    halves = scores / 2
    ordered = halves.sort(-1, descending=True).values
    size = torch.arange(1, scores.shape[-1] + 1, dtype=scores.dtype)
    mean = ordered.cumsum(-1) / size
    spread = ordered.square().cumsum(-1) - size * mean.square()
    thresholds = mean - ((1 - spread).clamp(min=0) / size).sqrt()
    chosen_total = (thresholds <= ordered).sum(-1, keepdim=True)
    return (halves - thresholds.gather(-1, chosen_total - 1)).clamp(min=0).square()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [0.1, 1.0, 30.0])
def test_bisection_and_sorting_agree(shape: tuple[int, ...], size: float) -> None:
    scores = draw(*shape, size=size)
    assert torch.allclose(Entmax(1.5)(scores), entmax_by_sorting(scores))
    assert torch.allclose(Entmax(2.0 + 1e-9)(scores), Sparsemax()(scores), atol=1e-7)
    assert torch.equal(Entmax(2.0)(scores), Sparsemax()(scores))


def test_entmax_at_one_is_the_softmax_and_tends_to_it() -> None:
    scores = draw(4, 6)
    assert torch.equal(Entmax(1.0)(scores), torch.softmax(scores, -1))
    assert torch.allclose(Entmax(1.0001)(scores), torch.softmax(scores, -1), atol=1e-3)


@pytest.mark.parametrize("alpha", [1 + 1e-7, 1 + 1e-5, 1.01, 1.0999, 1.1001])
def test_entmax_near_one_is_as_exact_in_float32(alpha: float) -> None:
    scores = 2 * torch.randn(5, 50, generator=torch.Generator().manual_seed(0))
    exact = Entmax(alpha)(scores.double())
    assert torch.allclose(Entmax(alpha)(scores).double(), exact, atol=3e-6)
    assert torch.allclose(exact, torch.softmax(scores.double(), -1), atol=2 * (alpha - 1))


def test_a_temperature_below_one_keeps_the_lowest_scores_finite() -> None:
    lowest = torch.full((1, 4), torch.finfo(torch.float64).min, dtype=torch.float64)
    assert torch.equal(Softmax(0.5)(lowest), torch.full_like(lowest, 0.25))


def test_an_alpha_that_is_a_tensor_is_refused() -> None:
    with pytest.raises(TypeError, match="no gradient reaches alpha"):
        Entmax(torch.tensor(1.5))  # type: ignore[arg-type]


@pytest.mark.parametrize("normaliser", [Sparsemax(), Entmax(1.5)], ids=str)
def test_forward_mode_agrees_with_the_gradient(normaliser: Any) -> None:
    scores, direction = draw(3, 6).detach(), draw(3, 6, size=0.5).detach()
    tangent = torch.func.jvp(normaliser, (scores,), (direction,))[1]
    _, pull = torch.func.vjp(normaliser, scores)
    assert torch.allclose((tangent * scores).sum(), (pull(scores)[0] * direction).sum())


@pytest.mark.parametrize("alpha", [1.2, 1.5, 2.0, 3.0])
def test_the_optimality_conditions(alpha: float) -> None:
    """On the support, s - p^(alpha - 1) / (alpha - 1) is one number; off it, s is no higher."""
    scores = draw(5, 9, size=2.0).detach()
    weights = Entmax(alpha)(scores)
    slack = scores - weights.pow(alpha - 1) / (alpha - 1)
    support = weights > 0
    threshold = torch.where(support, slack, -torch.inf).amax(-1, keepdim=True)
    assert torch.allclose(torch.where(support, slack, threshold), threshold, atol=1e-6)
    assert (scores <= threshold + 1e-6)[~support].all()


@pytest.mark.parametrize(
    "normaliser",
    [Softmax(), Softmax(3.0), Sparsemax(), Entmax(1.3), Entmax(1.5), Entmax(2.5), Identity()],
    ids=str,
)
def test_gradients(normaliser: Softmax) -> None:
    assert torch.autograd.gradcheck(normaliser, draw(3, 6))
    readable = torch.rand(3, 6) > 0.4
    readable[1] = False
    assert torch.autograd.gradcheck(lambda scores: normaliser(scores, readable), draw(3, 6))
    assert torch.autograd.gradgradcheck(normaliser, draw(2, 4), atol=1e-4)


@pytest.mark.parametrize("alpha", [1.2, 1.5, 1.9])
def test_the_entmax_package(alpha: float) -> None:
    entmax = pytest.importorskip("entmax")
    scores = draw(5, 20, size=2.0)
    theirs = entmax.entmax_bisect(scores, alpha, dim=-1, n_iter=60)
    ours = Entmax(alpha)(scores)
    assert torch.allclose(ours, theirs)
    expected_tensor = torch.randn(5, 20, dtype=torch.float64)
    slopes = [torch.autograd.grad((w * expected_tensor).sum(), scores)[0] for w in (ours, theirs)]
    assert torch.allclose(*slopes)


def test_the_entmax_package_on_sparsemax() -> None:
    entmax = pytest.importorskip("entmax")
    scores = draw(5, 20, size=2.0)
    assert torch.allclose(Sparsemax()(scores), entmax.sparsemax(scores, dim=-1))
    assert torch.allclose(Entmax(1.5)(scores), entmax.entmax15(scores, dim=-1))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("normaliser", [Sparsemax(), Entmax(1.5), Hard(), Softmax()], ids=str)
def test_narrow_types_and_huge_scores(dtype: torch.dtype, normaliser: Softmax) -> None:
    scores = torch.tensor([[3e4, -3e4, 0.0], [1.0, 1.0, -3e4]], dtype=dtype, requires_grad=True)
    weights = normaliser(scores)
    assert weights.dtype == dtype
    assert weights[0].tolist() == [1.0, 0.0, 0.0]
    weights.square().sum().backward() if weights.requires_grad else None
    assert scores.grad is None or scores.grad.isfinite().all()


def test_hard_takes_the_first_of_equals() -> None:
    scores = torch.tensor([[0.0, 2.0, 2.0, 1.0], [5.0, 5.0, 5.0, 5.0]])
    assert Hard()(scores).tolist() == [[0, 1, 0, 0], [1, 0, 0, 0]]
    readable = torch.tensor([[True, False, True, True], [False, False, True, True]])
    assert Hard()(scores, readable).tolist() == [[0, 0, 1, 0], [0, 0, 1, 0]]


def test_hard_gradients_are_none_or_those_of_the_softmax() -> None:
    scores, expected_tensor = draw(3, 5), torch.randn(3, 5, dtype=torch.float64)
    assert not Hard()(scores).requires_grad
    straight = Hard("straight_through")(scores)
    assert torch.equal(straight, Hard()(scores))
    gradient = torch.autograd.grad((straight * expected_tensor).sum(), scores)[0]
    soft = torch.autograd.grad((torch.softmax(scores, -1) * expected_tensor).sum(), scores)[0]
    assert torch.allclose(gradient, soft)


def test_a_readable_mask_may_have_more_batch_axes_than_the_scores() -> None:
    readable = torch.rand(3, 1, 6) > 0.5
    assert Softmax()(draw(4, 6), readable).shape == (3, 4, 6)


@pytest.mark.parametrize("readable", [None, torch.ones(2, 0, dtype=torch.bool)])
@pytest.mark.parametrize("normaliser", [Softmax(), Sparsemax(), Entmax(1.5), Hard()], ids=str)
def test_no_keys_at_all(normaliser: Softmax, readable: Tensor | None) -> None:
    assert normaliser(torch.zeros(2, 0), readable).shape == (2, 0)


@pytest.mark.parametrize(
    "make",
    [lambda: Softmax(0.0), lambda: Entmax(0.5), lambda: Entmax(float("nan")), lambda: Hard("soft")],
)
def test_settings_that_mean_nothing(make: object) -> None:
    with pytest.raises(ValueError, match="pass"):
        make()  # type: ignore[operator]
