"""A decoder's step with e^(2c) kept: the reading and gradients of the equations, or the usual way."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import regard
from regard.attention.kernels.additive.steps import StepAdditive, attend_step, prepare_steps
from regard.attention.normalisers import Softmax, Sparsemax
from regard.attention.scores import Additive, Cosine, prepare
from regard.attention.scores.powers import REACH

BATCH, KEYS, WIDTH, HIDDEN = 3, 7, 5, 12


@pytest.fixture(params=["powers", "tanh"], autouse=True)
def _work_limit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes below which tanh is taken: none, or all of these tests."""
    limit = 0 if request.param == "powers" else 1 << 30
    monkeypatch.setattr("regard.attention.kernels.additive.steps.FEW", {True: limit, False: limit})


def _random_inputs(dtype: torch.dtype = torch.float64) -> tuple[Additive, Tensor, Tensor, Tensor]:
    torch.manual_seed(4)
    score = Additive(WIDTH, 4, HIDDEN, bias=True).to(dtype)
    query, key = torch.randn(BATCH, 1, WIDTH, dtype=dtype), torch.randn(BATCH, KEYS, 4, dtype=dtype)
    readable = torch.arange(KEYS) < torch.tensor([7, 1, 4])[:, None, None]
    return score, query.requires_grad_(), key.requires_grad_(), readable


def _steps(score: Additive, query: Tensor, key: Tensor, readable: Tensor | None) -> Tensor:
    steps, powers = prepare_steps(*prepare(score, key), Softmax(), readable)
    assert isinstance(steps, StepAdditive)
    return attend_step(query, powers, key, score=steps, mask=readable)


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("scale", [0.1, 1.0, 100.0, 1e4])
def test_the_reading_and_its_gradients_are_those_of_attend(scale: float, masked: bool) -> None:
    score, query, key, readable = _random_inputs()
    mask = readable if masked else None
    leaves = [query, key, *score.parameters()]
    readings, gradients = [], []
    for read in (_steps, lambda s, q, k, m: regard.attend(q, k, k, score=s, mask=m)):
        reading = read(score, query * scale, key, mask)
        readings.append(reading)
        gradients.append(torch.autograd.grad(reading.sin().sum(), leaves))
    torch.testing.assert_close(*readings)
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)
    with torch.no_grad():
        torch.testing.assert_close(_steps(score, query * scale, key, mask), readings[1])


@pytest.mark.parametrize("shift", [-REACH, REACH])
@pytest.mark.parametrize("query_shift", [-1e4, -60.0, -21.0, 21.0, 43.5, 60.0, 1e4])
def test_it_is_exact_to_the_end_of_its_reach(shift: float, query_shift: float) -> None:
    c = torch.linspace(-0.5, 0.5, KEYS * HIDDEN).reshape(1, KEYS, HIDDEN) * shift * 0.01
    c = (c + shift * 0.99).requires_grad_()
    a = (torch.full((1, 1, HIDDEN), query_shift) + torch.linspace(-1, 1, HIDDEN)).requires_grad_()
    score = Additive(HIDDEN, HIDDEN, HIDDEN)
    with torch.no_grad():
        score.query_weight.copy_(torch.eye(HIDDEN))
        score.key_weight.copy_(torch.eye(HIDDEN))
    exact = torch.softmax(
        torch.tanh(a.double()[:, :, None] + c.double()) @ score.weight.double(), -1
    )
    ours = _steps(score, a, c, None)
    torch.testing.assert_close(ours, (exact @ c.double()).float(), rtol=1e-5, atol=1e-5)
    expected_gradients = torch.autograd.grad((exact @ c.double()).sin().sum(), (a, c))
    for mine, truth in zip(
        torch.autograd.grad(ours.sin().sum(), (a, c)), expected_gradients, strict=True
    ):
        torch.testing.assert_close(mine, truth, rtol=1e-4, atol=1e-4)


def test_what_it_does_not_serve_stays_as_it_is() -> None:
    score, _, key, readable = _random_inputs()
    prepared = prepare(score, key)
    far, spoilt = prepared[1] + REACH + 5, prepared[1].clone()
    spoilt[0, 6, 0] = torch.nan
    nothing = readable.clone()
    nothing[1] = False
    for options in (
        (*prepared, Sparsemax(), readable),
        (*prepared, Softmax(0.5), readable),
        (*prepared, Softmax(), nothing),
        (prepared[0], far, Softmax(), readable),
        (prepared[0], spoilt, Softmax(), readable),
        (prepared[0], prepared[1].half(), Softmax(), readable),
        (*prepare(Cosine(), key), Softmax(), readable),
    ):
        assert prepare_steps(*options) == options[:2]


def test_several_queries_are_read_by_attend_and_looks() -> None:
    score, query, key, readable = _random_inputs()
    steps, powers = prepare_steps(*prepare(score, key), Softmax(), readable)
    queries = torch.cat([query, -query], 1)
    torch.testing.assert_close(
        regard.attend(queries, powers, key, score=steps, mask=readable),
        regard.attend(queries, key, key, score=score, mask=readable),
    )
    torch.testing.assert_close(
        regard.look(queries, powers, score=steps, mask=readable).weights(),
        regard.look(queries, key, score=score, mask=readable).weights(),
    )


def test_e_to_the_2c_is_kept_where_it_is_the_faster_way(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {True: BATCH * KEYS * HIDDEN, False: BATCH * KEYS * HIDDEN - 1}
    monkeypatch.setattr("regard.attention.kernels.additive.steps.FEW", sizes)
    score, _, key, readable = _random_inputs()
    plain, features = prepare(score, key)
    assert prepare_steps(plain, features, Softmax(), readable)[1] is features
    with torch.no_grad():
        powers = prepare_steps(plain, features, Softmax(), readable)[1]
    torch.testing.assert_close(powers, (2 * features).exp())


def test_many_rows_are_read_a_strip_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    score, query, key, readable = _random_inputs()
    with torch.no_grad():
        whole_steps = _steps(score, query, key, readable)
        monkeypatch.setattr("regard.attention.scores.powers.ROOM", 1)
        torch.testing.assert_close(_steps(score, query, key, readable), whole_steps)
