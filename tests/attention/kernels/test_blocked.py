"""Blocks of queries give what the whole gives, to every gradient, in less memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.agreement.cases import CASES, SINGLE, Case
from tests.agreement.comparing import TOLERANCE, compare
from tests.agreement.test_kernels import answer
from tests.peaks import growth, measured
from torch import Tensor

import regard
from regard.attention import masks, normalisers, scores
from regard.attention.kernels import blocked
from regard.attention.kernels.request import ask
from regard.attention.masks import layout
from regard.attention.positions import Alibi


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocked, "BLOCK", 600)  # two or three queries of most cases


def draw(*shapes: tuple[int, ...]) -> list[Tensor]:
    torch.manual_seed(3)
    return [torch.randn(s, dtype=torch.float64).requires_grad_() for s in shapes]


def both_readings(leaves: list[Tensor], *parts: Any, **named: Any) -> tuple[list[Any], list[Any]]:
    """The gradients of the whole, and of blocks, for all leaves."""
    results = []
    for kernel in ("reference", "blocked"):
        with regard.kernel(kernel):
            reading = regard.attend(*parts, **named)
        results.append(list(torch.autograd.grad(reading.sin().sum(), leaves)))
    return results[0], results[1]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_many_blocks_agree_with_the_exact_reference(case: Case) -> None:
    built = case.build()
    exact = answer("reference", built.arguments(torch.float64))
    actual = answer("blocked", built.arguments(case.dtype))
    assert actual["reading"].dtype == case.dtype
    for name in exact:
        compare(name, actual[name], exact[name], TOLERANCE[case.dtype] * case.slack)


def test_what_the_callers_functions_close_over_gets_its_gradient() -> None:
    query, key, value, stretch, power = draw((2, 9, 4), (2, 7, 4), (2, 7, 3), (4, 4), (1,))
    exact, actual = both_readings(
        [query, key, value, stretch, power],
        query,
        key,
        value,
        score=lambda q, k: torch.tanh(q @ stretch @ k.mT),
        normaliser=lambda rows: torch.softmax(rows, -1) * power,
        mask=lambda row, column: (row + column) % 3 > 0,
    )
    for expected, actual_gradient in zip(exact, actual, strict=True):
        compare("gradient", actual_gradient, expected, 1e-12)


def test_a_tensor_made_from_a_parameter_may_be_closed_over() -> None:
    query, key, value, root = draw((9, 4), (7, 4), (7, 3), (4, 4))
    built = root.square() + 1
    results = []
    for kernel in ("reference", "blocked"):
        with regard.kernel(kernel):
            reading = regard.attend(query, key, value, score=lambda q, k: q @ built @ k.mT)
        results += torch.autograd.grad(reading.sin().sum(), root, retain_graph=True)
    compare("gradient", results[1], results[0], 1e-12)


@pytest.mark.parametrize(
    "score", [scores.SoftCap(scores.Dot(), 3.0), scores.Additive(4, 4, 5).double()], ids=str
)
def test_gradients_have_gradients(score: scores.Score) -> None:
    query, key, value, bias = leaves = draw((2, 9, 4), (2, 7, 4), (2, 7, 3), (9, 7))
    seconds = []
    for kernel in ("reference", "blocked"):
        with regard.kernel(kernel):
            reading = regard.attend(
                query, key, value, score=score, bias=bias, mask=masks.causal(align="end")
            )
        first_gradients = torch.autograd.grad(reading.sin().sum(), leaves, create_graph=True)
        seconds.append(torch.autograd.grad(sum(g.square().sum() for g in first_gradients), leaves))
    for expected, actual_gradient in zip(*seconds, strict=True):
        compare("second gradient", actual_gradient, expected, 1e-11)


def test_a_recomputed_block_drops_the_same_weights() -> None:
    query, key, value = draw((2, 40, 4), (2, 30, 4), (2, 30, 3))
    with regard.kernel("blocked"):
        reading = regard.attend(query, key, value, dropout=0.5, normaliser=normalisers.Sparsemax())
    state = torch.get_rng_state()
    upstream = torch.randn(reading.shape, dtype=torch.float64)
    torch.set_rng_state(state)
    (slope,) = torch.autograd.grad((reading * upstream).sum(), value)
    # A reading is linear in the values, for the weights that were kept.
    assert torch.allclose((slope * value).sum(), (reading * upstream).sum())
    assert torch.equal(torch.get_rng_state(), state)
    undropped = regard.attend(query, key, value, normaliser=normalisers.Sparsemax())
    assert not torch.allclose(undropped, reading)


def test_no_gradient_is_asked_for() -> None:
    query, key, value = draw((9, 4), (7, 4), (7, 3))
    with torch.no_grad(), regard.kernel("blocked"):
        reading = regard.attend(query, key, value)
    assert not reading.requires_grad
    assert torch.allclose(reading, regard.attend(query, key, value))


def test_function_transforms_see_blocks_too() -> None:
    query, key, value = draw((9, 4), (7, 4), (7, 3))

    def total(query: Tensor) -> Tensor:
        with regard.kernel("blocked"):
            return regard.attend(query, key, value, normaliser=normalisers.Entmax()).sin().sum()

    expected = torch.autograd.grad(total(query), query)[0]
    assert torch.allclose(torch.func.grad(total)(query), expected)
    mapped = torch.func.vmap(total)(torch.stack([query, 2 * query]))
    assert torch.allclose(mapped, torch.stack([total(query), total(2 * query)]))


def test_a_score_of_the_whole_is_refused_with_the_shape_that_is_wanted() -> None:
    query, key, value = draw((9, 4), (7, 4), (7, 3))
    whole_query = query @ key.mT
    with (
        regard.kernel("blocked"),
        pytest.raises(regard.attention.shapes.ShapeError, match=r"must give \[..., 1, 7\]"),
    ):
        regard.attend(query, key, value, score=lambda q, k: whole_query)


def test_blocks_are_chosen_where_the_whole_is_large() -> None:
    sparse = normalisers.Sparsemax()
    long, short = torch.empty(8192, 4), torch.empty(512, 4)
    explanation = regard.explain(long, long, normaliser=sparse)
    assert explanation.kernel == "blocked"
    assert "too large to be computed as a whole, 8192 queries x 8192 keys" in str(explanation)
    assert regard.explain(short, short, normaliser=sparse).kernel == "reference"
    additive = scores.Additive(4, 4, 128)
    assert regard.explain(long, long).kernel == "sdpa"
    assert regard.explain(long, long, dropout=0.1).kernel == "matmul"  # in tiles
    assert regard.explain(short, short, dropout=0.1).kernel == "matmul"
    middling = torch.empty(1024, 4)
    assert regard.explain(middling, middling, normaliser=sparse).kernel == "reference"
    explanation = regard.explain(middling, middling, score=additive, normaliser=sparse)
    assert explanation.kernel == "blocked"


@measured
def test_the_matrix_is_never_there() -> None:
    query, key, value = (torch.randn(4096, 8).requires_grad_() for _ in range(3))

    def run(rows: int) -> None:
        with regard.kernel("blocked"):
            reading = regard.attend(
                query[:rows], key, value, score=lambda q, k: torch.tanh(q @ k.mT)
            )
        reading.square().sum().backward()

    matrix = 4096 * 4096 * SINGLE.itemsize / 2**20
    assert growth(lambda: run(64), lambda: run(4096)) < matrix / 2


@pytest.mark.parametrize("parts", [{}, {"normaliser": normalisers.Sparsemax()}, {"bias": Alibi(1)}])
def test_blocks_under_a_union_read_the_runs_of_keys_alone(
    parts: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocked, "LOW", 4)
    monkeypatch.setattr(layout, "ONE_RUN", 4)
    query, key, value = draw((2, 40, 4), (2, 40, 4), (2, 40, 3))
    mask = masks.band(3, 0) | masks.padding([4])
    spans = blocked.spans_of(ask(query, key, value, mask=mask, **parts), 600)
    assert len(spans) > 3
    for span in spans[3:]:
        rows, columns = span.positions(key.device)
        readable = mask.dense((2,), 40, 40)[0, rows].any(0)
        assert columns.tolist() == readable.nonzero().flatten().tolist()
    leaves = [query, key, value]
    exact, actual = both_readings(leaves, *leaves, mask=mask, **parts)
    for gradient, expected in zip(actual, exact, strict=True):
        compare("gradient", gradient, expected, 1e-12)
