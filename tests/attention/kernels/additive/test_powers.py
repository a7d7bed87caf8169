"""Prepared keys of additive scores keep e^(2c): the scores of the equation, whatever happens to the keys."""

from __future__ import annotations

import pytest
import torch
from tests.attention.kernels.operations import operations
from torch import Tensor
from torch.nn.utils.parametrize import register_parametrization
from torch.nn.utils.prune import random_unstructured

import regard
from regard.attention.scores import Additive, powers, prepare

BATCH, KEYS, WIDTH, HIDDEN = 3, 7, 5, 12
MASK = regard.masks.padding([7, 1, 4])


@pytest.fixture(autouse=True)
def _no_work_is_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(powers, "FEW", 0)


def _inputs(dtype: torch.dtype = torch.float64) -> tuple[Additive, Tensor, Tensor]:
    torch.manual_seed(4)
    score = Additive(WIDTH, 4, HIDDEN, bias=True).double()
    query, key = torch.randn(BATCH, 1, WIDTH).to(dtype), torch.randn(BATCH, KEYS, 4).to(dtype)
    return score.to(dtype), query, key


@pytest.mark.parametrize("room", [1, powers.ROOM], ids=["strips", "whole"])
@pytest.mark.parametrize("mask", [None, MASK], ids=["all", "padding"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_each_query_reads_as_by_the_equation(dtype, mask, room, monkeypatch):
    monkeypatch.setattr(powers, "ROOM", room)
    score, query, key = _inputs(dtype)
    with torch.no_grad():
        quick, features = prepare(score, key)
        exact = regard.attend(
            query.double(), key.double(), key.double(), score=_inputs()[0], mask=mask
        )
        for _ in range(3):
            reading = regard.attend(query, features, key, score=quick, mask=mask)
            tolerance = 1e-6 if dtype == torch.float32 else 1e-13
            torch.testing.assert_close(reading.double(), exact, atol=tolerance, rtol=0)
        assert quick.kept._powers is not None
        weights = regard.look(query, features, score=quick, mask=mask).weights()
    assert torch.allclose(weights @ key, reading, atol=1e-6)


def _turn(score: Additive, features: Tensor) -> None:
    score.weight.neg_()
    score.query_weight.mul_(2)


CHANGES = {
    "moved": lambda _, features: features.neg_(),
    "out of reach": lambda _, features: features.add_(25.0).neg_(),
    "far out": lambda _, features: features.add_(1e5).neg_(),
    "weights": _turn,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_changes_is_read_as_it_is(change):
    score, query, key = _inputs()
    with torch.no_grad():
        quick, features = prepare(score, key)
        for _ in range(2):
            quick(query, features)
        change(score, features)
        for _ in range(3):
            expected = score.combine(score.query_features(query), features)
            torch.testing.assert_close(quick(query, features), expected)


def test_gradients_and_other_keys_take_the_equation():
    score, query, key = _inputs()
    with torch.no_grad():
        quick, features = prepare(score, key)
        for _ in range(2):
            quick(query, features)
        copied = features.clone()
        expected = score.combine(score.query_features(query), copied)
        assert torch.equal(quick(query, copied), expected)
    (slope,) = torch.autograd.grad(quick(query, features).sum(), score.weight)
    (exact,) = torch.autograd.grad(score(query, key).sum(), score.weight)
    torch.testing.assert_close(slope, exact)
    assert prepare(score, key)[0].kept is None


def test_large_queries_and_hidden_nan_are_read_as_by_the_equation():
    score, query, key = _inputs()
    with torch.no_grad():
        query *= torch.tensor([1e30, -1e30, 1.0]).double()[:, None, None]
        quick, features = prepare(score, key)
        for _ in range(3):
            expected = score.combine(score.query_features(query), features)
            torch.testing.assert_close(quick(query, features), expected)
        features[1, 2] = torch.nan  # a key that its query may not read
        for _ in range(3):
            reading = regard.attend(query, features, key, score=quick, mask=MASK)
            assert reading.isfinite().all()


@pytest.mark.parametrize("few", [0, 1 << 30], ids=["powers", "tanh"])
def test_a_single_query_needs_no_request(few, monkeypatch):
    monkeypatch.setattr(powers, "FEW", few)
    score, query, key = _inputs()
    with torch.no_grad():
        quick, features = prepare(score, key)
        masks = (None, MASK, MASK & regard.masks.band(3, 2), regard.masks.padding([7, 0, 4]))
        masks += (lambda row, column: column < 5, MASK.dense((BATCH,), 1, KEYS))
        with regard.kernel("reference"):
            exact = [regard.attend(query, key, key, score=score, mask=mask) for mask in masks]
        for mask, reading in zip(masks, exact, strict=True):
            for _ in range(3):
                quickly = regard.attend(query, features, key, score=quick, mask=mask)
                torch.testing.assert_close(quickly, reading)
        monkeypatch.setattr("regard.attention.attend.ask", None)
        regard.attend(query, features, key, score=quick, mask=MASK)
        monkeypatch.undo()
        for spoilt in (query.float(), query[..., :3], query[:2], query.expand(-1, 3, -1)):
            with pytest.raises((RuntimeError, TypeError, ValueError)):
                regard.attend(spoilt, features, key[:, :2], score=quick)


@pytest.mark.parametrize(
    "mask",
    [
        regard.masks.causal(align="end"),
        regard.masks.documents(torch.zeros(3).long(), torch.arange(KEYS) // 4),
        torch.ones(BATCH, 3, KEYS).tril(3) > 0,
    ],
    ids=["causal", "documents", "booleans"],
)
def test_several_queries_read_under_a_mask_of_theirs(mask):
    score, _, key = _inputs()
    query = torch.randn(BATCH, 3, WIDTH, dtype=torch.float64)
    with torch.no_grad():
        quick, features = prepare(score, key)
        reading = regard.attend(query, features, key, score=quick, mask=mask)
    torch.testing.assert_close(reading, regard.attend(query, key, key, score=score, mask=mask))


def test_a_bias_that_is_pruned_later_is_read_as_it_is():
    score, query, key = _inputs()
    with torch.no_grad():
        torch.nn.init.normal_(score.bias)
        quick, features = prepare(score, key)
        random_unstructured(score, "bias", 0.5)
        reading = regard.attend(query, features, key, score=quick)
        torch.testing.assert_close(reading, regard.attend(query, key, key, score=score))


@pytest.mark.parametrize("few", [0, 1 << 30], ids=["powers", "tanh"])
@pytest.mark.parametrize("mask", [None, MASK], ids=["all", "padding"])
def test_a_single_query_takes_no_more_operations_than_by_hand(few, mask, monkeypatch):
    monkeypatch.setattr(powers, "FEW", few)
    score, query, key = _inputs()
    addend = torch.zeros(BATCH, 1, KEYS, dtype=torch.float64)

    def by_hand() -> None:
        scores = torch.tanh((query @ score.query_weight.T)[:, :, None] + features[:, None]) @ weight
        torch.softmax(scores if mask is None else scores + addend, -1) @ key

    def ours() -> None:
        regard.attend(query, features, key, score=quick, mask=mask)

    with torch.no_grad():
        weight, (quick, features) = score.weight.detach(), prepare(score, key)
        ours()
        assert operations(ours) <= operations(by_hand)


def test_computed_weights_and_other_precisions_take_a_request():
    score, query, key = _inputs(torch.float32)
    with torch.no_grad():
        quick, features = prepare(score, key)
        register_parametrization(score, "query_weight", torch.nn.Tanh())
        expected = regard.attend(query, key, key, score=score)
        torch.testing.assert_close(regard.attend(query, features, key, score=quick), expected)
        with torch.autocast("cpu", torch.bfloat16):
            expected = regard.attend(query, key, key, score=score)
            reading = regard.attend(query, features, key, score=quick)
        torch.testing.assert_close(reading, expected, atol=0.02, rtol=0.02)
