"""The loss: torch's label-smoothed cross-entropy, values and gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from regard.translation.models.transformer import Transformer, TransformerSettings
from regard.translation.text.batches import Batch
from regard.translation.training.loss import Objective, smoothed_cross_entropy

smoothings = pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])


@smoothings
@pytest.mark.parametrize("tokens", [0, 1, 63, 64, 65, 200])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_it_is_torchs_in_float64(smoothing, tokens, dtype):
    torch.manual_seed(tokens)
    logits = (4 * torch.randn(tokens, 37)).to(dtype).requires_grad_()
    exact = logits.detach().double().requires_grad_()
    targets = torch.randint(37, (tokens,))
    loss = smoothed_cross_entropy(logits, targets, smoothing)
    expected = F.cross_entropy(exact, targets, label_smoothing=smoothing, reduction="sum")
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    (loss * 0.5).backward()
    (expected * 0.5).backward()
    assert logits.grad.dtype == dtype
    near = 1e-2 if dtype == torch.bfloat16 else 1e-6
    assert torch.allclose(logits.grad.double(), exact.grad, atol=near, rtol=near)


@smoothings
def test_large_logits_stay_finite(smoothing):
    logits = torch.tensor([[1e4, -1e4, 0.0], [-3e38, 3e38, 0.0]], requires_grad=True)
    loss = smoothed_cross_entropy(logits[:1], torch.tensor([1]), smoothing)
    expected = F.cross_entropy(logits[:1], torch.tensor([1]), label_smoothing=smoothing)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    loss.backward()
    assert bool(logits.grad.isfinite().all())


def test_not_a_number_stays_one():
    logits = torch.tensor([[0.0, torch.nan]])
    assert bool(smoothed_cross_entropy(logits, torch.tensor([0]), 0.1).isnan())


def test_without_gradients_the_logits_are_left_alone():
    logits = torch.randn(5, 7)
    before = logits.clone()
    with torch.no_grad():
        smoothed_cross_entropy(logits, torch.zeros(5, dtype=torch.int64), 0.1)
    smoothed_cross_entropy(logits, torch.zeros(5, dtype=torch.int64), 0.1)
    assert torch.equal(logits, before)


def test_a_hook_of_the_output_layer_is_called():
    torch.manual_seed(0)
    settings = TransformerSettings(width=8, heads=2, feed_forward=8, dropout=0.0)
    model, words = Transformer(settings, 12, 12), torch.tensor([[2, 5, 6], [2, 7, 0]])
    lengths, seen = torch.tensor([3, 2]), []
    batch = Batch(words, lengths, words, words.roll(-1, 1), lengths, np.arange(2))
    expected = Objective(model, 0.1)(batch)
    model.output.register_forward_hook(lambda *_: seen.append(1))
    assert Objective(model, 0.1)(batch).item() == pytest.approx(expected.item(), rel=1e-6)
    assert seen
