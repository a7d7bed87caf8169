"""The output layer and its loss together: torch's, with the gradients of everything."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from regard.translation.training import output
from regard.translation.training.output import projected_cross_entropy


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("words", "vocabulary"), [(0, 9), (1, 37), (50, 1031), (200, 37)])
def test_it_is_torchs_in_float64(words, vocabulary, biased, smoothing, monkeypatch):
    monkeypatch.setattr(output, "_HELD", 40 * vocabulary)  # so that there are several turns
    torch.manual_seed(words)
    hidden, weight = 4 * torch.randn(words, 12), torch.randn(vocabulary, 12)
    bias = torch.randn(vocabulary) if biased else None
    targets = torch.randint(vocabulary, (words,))
    own = [None if t is None else t.clone().requires_grad_() for t in (hidden, weight, bias)]
    exact = [None if t is None else t.double().requires_grad_() for t in (hidden, weight, bias)]
    loss = projected_cross_entropy(*own, targets, smoothing)
    expected = F.cross_entropy(
        F.linear(*exact), targets, label_smoothing=smoothing, reduction="sum"
    )
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    (loss * 0.5).backward()
    (expected * 0.5).backward()
    for found, other in zip(own, exact, strict=True):
        if found is not None:
            assert torch.allclose(found.grad.double(), other.grad, rtol=1e-4, atol=1e-5)


def test_not_a_number_stays_one():
    hidden = torch.tensor([[0.0, torch.nan], [1.0, 1.0]], requires_grad=True)
    loss = projected_cross_entropy(hidden, torch.ones(5, 2), None, torch.tensor([0, 1]), 0.1)
    assert bool(loss.isnan())


def test_large_logits_stay_finite():
    hidden = torch.tensor([[1e4, -3e38]], requires_grad=True)
    loss = projected_cross_entropy(hidden, torch.eye(3, 2), None, torch.tensor([0]), 0.0)
    loss.backward()
    assert loss.item() == 0.0
    assert bool(hidden.grad.isfinite().all())
