"""The output layer and its loss together: torch's, with the gradients of everything."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.translation.models.recurrent.models import KINDS, LENGTHS, SOURCE, TARGET, small
from torch import Tensor

from regard.translation.models.protocol import TranslationModel
from regard.translation.models.transformer import Transformer, TransformerSettings
from regard.translation.text.batches import Batch
from regard.translation.training import output
from regard.translation.training.loss import Objective
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


def models() -> dict[str, TranslationModel]:
    """A Transformer, and recurrent models with an output layer of their own, with one tied to a side and to both."""
    torch.manual_seed(0)
    settings = TransformerSettings(width=8, heads=2, feed_forward=8, dropout=0.3)
    made: dict[str, TranslationModel] = {"transformer": Transformer(settings, 12, 12)}
    for kind in ("bahdanau", "bahdanau three-way", "luong concat", "fixed vector lstm copy"):
        made[kind] = small(**KINDS[kind], dropout=0.3).float()
    return made


@pytest.mark.parametrize("kind", models())
def test_a_model_learns_the_same_from_both_together(kind, monkeypatch):
    calls = []

    def called(*given):
        calls.append(given)
        return projected_cross_entropy(*given)

    monkeypatch.setattr(output, "projected_cross_entropy", called)
    model = models()[kind].train()
    lengths = torch.tensor([3, 1, 2])
    batch = Batch(SOURCE, LENGTHS, TARGET, TARGET.roll(-1, 1), lengths, np.arange(3))

    def learned(whole: bool) -> list[Tensor]:
        objective = Objective(model, 0.1)
        objective.whole = whole
        torch.manual_seed(1)
        model.zero_grad()
        loss = objective(batch)
        loss.backward()
        slopes = [weight.grad for weight in model.parameters() if weight.grad is not None]
        return [loss, *slopes]

    together, apart = learned(True), learned(False)
    assert len(calls) == 1
    for ours, theirs in zip(together, apart, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
