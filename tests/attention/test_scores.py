"""Each score against its formula, written with loops, and its gradient against differences."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.attention import scores
from regard.attention.scores import Additive, Cosine, Dot, DotLike, General, SoftCap, prepare
from regard.attention.scores.score import PairScore, pairwise, with_parameters
from regard.attention.shapes import ShapeError

D_QUERY, D_KEY, D_HIDDEN = 3, 5, 4


def vectors(d_query: int, d_key: int, *batch: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    query = torch.randn(*batch, 2, d_query, dtype=torch.float64, requires_grad=True)
    key = torch.randn(*batch, 4, d_key, dtype=torch.float64, requires_grad=True)
    return query, key


def filled(module: nn.Module) -> Any:
    """The module in float64 with every parameter, biases too, away from 0."""
    torch.manual_seed(1)
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    return module.double()


def by_hand(score: Any, q: Tensor, k: Tensor, head: int | None = None) -> float:
    """score(q, k) for one query and one key, as the papers write it."""

    def parameter_of_head(parameter: Tensor) -> Tensor:
        return (parameter if head is None else parameter[head]).detach()

    match score:
        case scores.Dot():
            return sum(a * b for a, b in zip(q.tolist(), k.tolist(), strict=True))
        case scores.ScaledDot(scale):
            return (scale or 1 / math.sqrt(len(q))) * by_hand(scores.Dot(), q, k)
        case scores.Cosine(scale):
            return scale * by_hand(scores.Dot(), q, k) / float(q.norm() * k.norm())
        case scores.General():
            return float(q @ parameter_of_head(score.weight) @ k)
        case scores.Additive():
            hidden = (
                parameter_of_head(score.query_weight) @ q + parameter_of_head(score.key_weight) @ k
            )
            if score.bias is not None:
                hidden = hidden + parameter_of_head(score.bias)
            return float(parameter_of_head(score.weight) @ torch.tanh(hidden))
        case scores.SoftCap():
            return score.cap * math.tanh(by_hand(score.score, q, k) / score.cap)
    raise NotImplementedError(score)


def every_score() -> list[tuple[Any, int]]:
    """Each score, with the width of key it wants."""
    return [
        (scores.Dot(), D_QUERY),
        (scores.ScaledDot(), D_QUERY),
        (scores.ScaledDot(0.3), D_QUERY),
        (scores.Cosine(), D_QUERY),
        (scores.Cosine(4.0), D_QUERY),
        (filled(scores.General(D_QUERY, D_KEY)), D_KEY),
        (filled(scores.Additive(D_QUERY, D_KEY, D_HIDDEN)), D_KEY),
        (filled(scores.Concat(D_QUERY, D_KEY, D_HIDDEN, bias=True)), D_KEY),
        (scores.SoftCap(scores.Dot(), 1.5), D_QUERY),
        (filled(scores.SoftCap(scores.General(D_QUERY, D_KEY), 1.5)), D_KEY),
    ]


EVERY_SCORE = pytest.mark.parametrize(
    ("score", "d_key"), every_score(), ids=lambda score: type(score).__name__
)


@EVERY_SCORE
def test_the_formula(score: Any, d_key: int) -> None:
    query, key = vectors(D_QUERY, d_key)
    expected = [[by_hand(score, q, k) for k in key.detach()] for q in query.detach()]
    assert torch.allclose(score(query, key), torch.tensor(expected, dtype=torch.float64))


@EVERY_SCORE
def test_the_gradient(score: Any, d_key: int) -> None:
    query, key = vectors(D_QUERY, d_key, 2)
    names = [n for n, _ in score.named_parameters()] if isinstance(score, nn.Module) else []
    values = [score.get_parameter(name) for name in names]

    def of(query: Tensor, key: Tensor, *parameters: Tensor) -> Tensor:
        if not names:
            return score(query, key)
        inputs = dict(zip(names, parameters, strict=True))
        return torch.func.functional_call(score, inputs, (query, key))

    assert torch.autograd.gradcheck(of, (query, key, *values))


@EVERY_SCORE
def test_prepared_keys_give_the_same_scores_and_gradients(score: Any, d_key: int) -> None:
    query, key = vectors(D_QUERY, d_key, 2)
    quick, prepared = scores.prepare(score, key)
    expected, actual = score(query, key), quick(query, prepared)
    assert torch.allclose(actual, expected)
    leaves = (query, key)
    for ours, theirs in zip(
        torch.autograd.grad(actual.sin().sum(), leaves),
        torch.autograd.grad(expected.sin().sum(), leaves),
        strict=True,
    ):
        assert torch.allclose(ours, theirs)


def test_preparing_projects_the_keys_once() -> None:
    _, key = vectors(D_QUERY, D_KEY)
    score = filled(scores.Additive(D_QUERY, D_KEY, D_HIDDEN))
    _, prepared = scores.prepare(score, key)
    assert torch.allclose(prepared, key @ score.key_weight.mT)
    _, untouched = scores.prepare(scores.Dot(), key)
    assert untouched is key


@pytest.mark.parametrize(
    "score",
    [
        filled(scores.General(D_QUERY, D_KEY, heads=3)),
        filled(scores.Additive(D_QUERY, D_KEY, D_HIDDEN, bias=True, heads=3)),
    ],
    ids=lambda score: type(score).__name__,
)
@pytest.mark.parametrize("prepared", [False, True])
def test_each_head_has_its_own_parameters(score: Any, prepared: bool) -> None:
    query, key = vectors(D_QUERY, D_KEY, 2, 3)
    quick, keys = scores.prepare(score, key) if prepared else (score, key)
    actual = quick(query, keys)
    assert actual.shape == (2, 3, 2, 4)
    for head in range(3):
        expected = by_hand(score, query[1, head, 1].detach(), key[1, head, 2].detach(), head)
        assert actual[1, head, 1, 2].item() == pytest.approx(expected)
    for parameter in score.parameters():
        assert parameter.shape[0] == 3


def test_grouped_heads_may_share_parameters_within_a_group() -> None:
    score = filled(scores.General(D_QUERY, D_KEY, heads=(3, 1)))
    query, _ = vectors(D_QUERY, D_KEY, 3, 2)
    key = torch.randn(3, 1, 4, D_KEY, dtype=torch.float64)
    actual = score(query, key)
    assert actual.shape == (3, 2, 2, 4)
    assert torch.allclose(actual[2, 1], query[2, 1] @ score.weight[2, 0] @ key[2, 0].mT)


def test_the_shapes_of_the_parameters() -> None:
    general, additive = scores.General(3, 5), scores.Additive(3, 5, 4, bias=True)
    assert {n: tuple(p.shape) for n, p in general.named_parameters()} == {"weight": (3, 5)}
    assert {n: tuple(p.shape) for n, p in additive.named_parameters()} == {
        "query_weight": (4, 3),
        "key_weight": (4, 5),
        "weight": (4,),
        "bias": (4,),
    }
    assert scores.Additive(3, 5, 4).bias is None
    assert scores.Concat is scores.Additive


@pytest.mark.parametrize("magnitude", [1e4, -1e4])
def test_additive_scores_saturate_without_overflow(magnitude: float) -> None:
    score = filled(scores.Additive(1, 1, 1)).float()
    query = torch.full((1, 1), magnitude, requires_grad=True)
    actual = score(query, torch.zeros(1, 1))
    actual.backward()
    assert actual.abs().item() == pytest.approx(abs(score.weight.item()))
    assert query.grad is not None
    assert query.grad.isfinite().all()


def test_the_cosine_of_a_zero_vector_is_zero() -> None:
    zero = torch.zeros(1, 3, requires_grad=True)
    actual = scores.Cosine()(zero, torch.ones(1, 3))
    actual.backward()
    assert actual.item() == 0
    assert zero.grad is not None
    assert not zero.grad.any()


@pytest.mark.parametrize("size", [6e-8, 1e-4, 1.0, 6e4])
def test_the_cosine_in_half_precision_is_that_of_vectors_of_any_length(size: float) -> None:
    query = torch.full((1, 4), size, dtype=torch.float16)
    for score, key in ((scores.Cosine(), query), scores.prepare(scores.Cosine(), query)):
        assert score(query, key).item() == pytest.approx(1.0, abs=2e-3)


@pytest.mark.parametrize(
    ("score", "message"),
    [
        (scores.Dot(), r"pass a key of shape \[..., 4, 3\]"),
        (scores.General(3, 6), "key is 5 wide, this General was made with d_key=6"),
        (scores.Additive(2, 5, 4), "query is 3 wide, this Additive was made with d_query=2"),
    ],
    ids=lambda score: type(score).__name__,
)
def test_widths_that_do_not_fit(score: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        score(torch.ones(2, 3), torch.ones(4, 5))


def test_a_cap_must_be_above_zero() -> None:
    with pytest.raises(ValueError, match="above 0"):
        scores.SoftCap(scores.Dot(), 0.0)


def test_a_cap_that_is_a_tensor_is_refused() -> None:
    with pytest.raises(TypeError, match=r"for one that is learned, score=lambda query, key"):
        scores.SoftCap(scores.Dot(), torch.tensor(2.0))  # type: ignore[arg-type]


def test_a_capped_score_owns_the_parameters_of_the_one_it_wraps() -> None:
    assert len(list(scores.SoftCap(scores.General(3, 5), 2.0).parameters())) == 1


class TestWhatAScoreSaysOfItself:
    """Kernels and looks ask a score; they do not look at its class."""

    @pytest.mark.parametrize(
        ("score", "pair_width", "parameters"),
        [
            (Dot(), 1, 0),
            (Cosine(2.0), 1, 0),
            (General(4, 6), 1, 1),
            (Additive(4, 6, 5, bias=True), 5, 4),
            (SoftCap(Additive(4, 6, 5, heads=2), 2.0), 5, 3),
            (prepare(Additive(4, 6, 5), torch.ones(2, 6))[0], 5, 2),
        ],
        ids=repr,
    )
    def test_its_width_and_its_parameters(
        self, score: PairScore, pair_width: int, parameters: int
    ) -> None:
        axes: list[int] = []

        def double(parameter: Tensor, own_axes: int) -> Tensor:
            axes.append(own_axes)
            return parameter * 2

        assert pairwise(score) is score
        assert score.pair_width == pair_width
        doubled = score.with_parameters(double)
        assert type(doubled) is type(score)
        assert len(axes) == parameters
        assert set(axes) <= {1, 2}

    def test_one_that_is_overridden_or_hooked_is_a_function_of_the_callers(self) -> None:
        class Shifted(Dot):
            def __call__(self, query: Tensor, key: Tensor, /) -> Tensor:
                return super().__call__(query, key) + 1

        hooked = Additive(4, 6, 5)
        hooked.register_forward_hook(lambda module, inputs, output: output * 2)
        for score in (
            Shifted(),
            hooked,
            SoftCap(Shifted(), 2.0),
            lambda query, key: query @ key.mT,
        ):
            assert pairwise(score) is None
            assert with_parameters(score, lambda parameter, axes: parameter) is None
            key = torch.ones(2, 6)
            assert prepare(score, key) == (score, key)

    def test_one_of_the_callers_may_hide_parameters(self) -> None:
        class Weighted(DotLike):
            weight = torch.ones(4)

            def factors(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, float]:
                return query * self.weight, key, 1.0

        assert pairwise(Weighted()) is not None
        assert with_parameters(Weighted(), lambda parameter, axes: parameter) is None
