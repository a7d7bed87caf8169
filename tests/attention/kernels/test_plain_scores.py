"""Calls without a request: those of every score that is a dot product, and trained ones on few scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.agreement.comparing import compare
from tests.attention.kernels.operations import operations
from torch import Tensor, nn
from torch.nn import functional as F

import regard
from regard import masks, scores
from regard.scores import Cosine, Dot, General, ScaledDot

DOTS: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "dot": lambda: "dot",
    "scaled": lambda: ScaledDot(0.3),
    "backwards": lambda: ScaledDot(-0.3),
    "cosine": lambda: Cosine(4.0),
    "general": lambda: General(6, 6).double(),
    "general of heads": lambda: General(6, 6, heads=3).double(),
}
MASKS: dict[str, Callable[[int], Any]] = {
    "all": lambda entries: None,
    "causal": lambda entries: masks.causal(align="end"),
    "padding": lambda entries: masks.padding([5, 2, 4][:entries]),
    "one length": lambda entries: masks.padding([3] * entries),
    "empty": lambda entries: masks.padding([0, 4, 5][:entries]),
}
SIZES = {"step": (1, (2, 3)), "few": (4, (2, 3)), "flat step": (1, (3,)), "flat": (4, (3,))}


def sides(queries: int, batch: tuple[int, ...], width: int = 6) -> list[Tensor]:
    torch.manual_seed(queries)
    return [torch.randn(*batch, n, width, dtype=torch.float64) for n in (queries, 5, 5)]


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", DOTS)
def test_readings_and_gradients_are_those_of_the_equations(
    name: str, size: str, mask: str, trains: bool
) -> None:
    queries, batch = SIZES[size]
    tensors = [side.requires_grad_(trains) for side in sides(queries, batch)]
    score, rule = DOTS[name](), MASKS[mask](batch[0])
    parameters = list(score.parameters()) if isinstance(score, nn.Module) else []

    def read() -> list[Tensor]:
        reading = regard.attend(*tensors, score=score, mask=rule)
        if not trains:
            return [reading]
        return [reading, *torch.autograd.grad(reading.square().sum(), [*tensors, *parameters])]

    with torch.set_grad_enabled(trains):
        actual = read()
        with regard.kernel("reference"):
            expected = read()
    for ours, exact in zip(actual, expected, strict=True):
        compare("reading or gradient", ours, exact, 1e-12)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", [name for name in DOTS if name != "backwards"])
def test_dot_products_and_small_trainings_need_no_request(
    name: str, size: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors, score, mask = sides(*SIZES[size]), DOTS[name](), masks.causal(align="end")
    monkeypatch.setattr("regard.attention.attend.ask", None)
    with torch.no_grad():
        regard.attend(*tensors, score=score)
        regard.attend(*tensors, score=score, mask=mask)
    regard.attend(*(side.requires_grad_() for side in tensors), score=score).sum().backward()
    assert all(side.grad is not None and side.grad.isfinite().all() for side in tensors)


def test_heads_with_gradients_need_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.attention.attend.ask", None)
    block = regard.TransformerBlock(8, 2)
    block(torch.randn(1, 5, 8)).sum().backward()
    assert all(parameter.grad is not None for parameter in block.parameters())


def unit(vectors: Tensor) -> Tensor:
    return F.normalize(vectors, dim=-1)


BY_HAND: dict[str, tuple[Callable[[], Any], Callable[..., tuple[Tensor, Tensor]]]] = {
    "dot": (Dot, lambda score, query, key: (query, key)),
    "cosine": (Cosine, lambda score, query, key: (unit(query), unit(key))),
    "general": (
        lambda: General(6, 6).double(),
        lambda score, query, key: (query @ score.weight, key),
    ),
}


@pytest.mark.parametrize("is_masked", [False, True])
@pytest.mark.parametrize("name", BY_HAND)
def test_a_step_takes_no_more_operations_than_by_hand(name: str, is_masked: bool) -> None:
    query, key, value = sides(1, (3,))
    make, vectors = BY_HAND[name]
    score, mask = make(), masks.band(2, 0, align="end") if is_masked else None
    addend = torch.zeros(1, 5, dtype=torch.float64)

    def by_hand() -> None:
        rows, columns = vectors(score, query, key)
        scores = torch.bmm(rows, columns.mT)
        weights = torch.softmax(scores + addend if is_masked else scores, -1)
        torch.bmm(weights, value)

    def ours() -> None:
        regard.attend(query, key, value, score=score, mask=mask)

    with torch.no_grad():
        ours()
        assert operations(ours) <= operations(by_hand) + is_masked  # whose reading is compared


@pytest.mark.parametrize("mask", [None, "causal", masks.causal(align="start"), masks.band(None, 0)])
@torch.no_grad()
def test_torch_makes_a_triangle_of_heads_without_a_layout(
    mask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    query, key, value = sides(5, (2, 3))
    with regard.kernel("reference"):
        expected = regard.attend(query, key, value, mask=mask)
    monkeypatch.setattr("regard.attention.kernels.plain._laid", None)
    monkeypatch.setattr("regard.attention.attend.ask", None)
    compare("reading", regard.attend(query, key, value, mask=mask), expected, 1e-12)


@pytest.mark.parametrize(
    ("width", "dtype"), [(4, torch.float64), (6, torch.float32), (6, torch.int64)]
)
def test_keys_that_do_not_fit_are_refused_by_name(width: int, dtype: torch.dtype) -> None:
    for batch in ((3,), (2, 3)):
        query, _, value = sides(1, batch)
        key = torch.ones(*batch, 5, width).to(dtype)
        with pytest.raises((regard.ShapeError, TypeError), match=r"query.*key"):
            regard.attend(query, key, value)


class Learnt(nn.Module, scores.DotLike):
    """A dot product whose scale is a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.7, dtype=torch.float64))

    def factors(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, Any]:
        return query, key, self.scale


class InHalf(scores.DotLike):
    """A dot product of vectors in half precision."""

    def factors(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, float]:
        return query.half(), key.half(), 0.5


@pytest.mark.parametrize("size", ["flat step", "flat"])
@pytest.mark.parametrize(("make", "tolerance"), [(Learnt, 1e-12), (InHalf, 1e-3)])
@torch.no_grad()
def test_scales_and_precisions_that_products_do_not_take(
    make: Callable[[], Any], tolerance: float, size: str
) -> None:
    tensors, score = sides(*SIZES[size]), make()
    with regard.kernel("reference"):
        expected = regard.attend(*tensors, score=score)
    compare("reading", regard.attend(*tensors, score=score), expected, tolerance)


def test_parameters_of_other_heads_are_refused_in_a_sentence() -> None:
    query, key, value = sides(1, (2, 3))
    with torch.no_grad(), pytest.raises(regard.ShapeError, match="heads="):
        regard.attend(query, key, value, score=General(6, 6, heads=2).double())


def test_few_scores_of_one_batch_axis_are_read_by_products() -> None:
    query, key, value = sides(1, (3,))
    assert regard.explain(query, key, value, score=scores.Cosine()).kernel == "matmul"
    assert regard.explain(*(side[None] for side in (query, key, value))).kernel == "sdpa"
    half = [side.bfloat16() for side in (query, key, value)]
    assert regard.explain(*half).kernel == "sdpa"
    query.requires_grad_()
    assert regard.explain(query, key, value).kernel == "sdpa"
