"""The loss of a batch: label-smoothed cross-entropy of its target words."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from regard.translation.models.transformer.model import Transformer
from regard.translation.settings.transformer import TransformerSettings
from regard.translation.text.batches import Batch
from regard.translation.training.step import Objective


def objective(smoothing: float) -> tuple[Transformer, Batch, torch.Tensor]:
    """A model, a batch with padding, and the loss of that batch."""
    torch.manual_seed(0)
    settings = TransformerSettings(width=8, heads=2, feed_forward=8, dropout=0.0)
    model, words = Transformer(settings, 12, 12), torch.tensor([[2, 5, 6], [2, 7, 0]])
    lengths = torch.tensor([3, 2])
    batch = Batch(words, lengths, words, words.roll(-1, 1), lengths, np.arange(2))
    return model, batch, Objective(model, smoothing)(batch)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
def test_it_is_the_smoothed_cross_entropy_of_words_without_padding(smoothing):
    model, batch, loss = objective(smoothing)
    with torch.no_grad():
        read = batch.source, batch.source_lengths, batch.target_in
        log_p = model(*read).double().log_softmax(-1)
    real = torch.arange(3) < batch.target_lengths[:, None]
    word_log_p = log_p.gather(-1, batch.target_out[..., None])[..., 0]
    losses = (1 - smoothing) * word_log_p + smoothing * log_p.mean(-1)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(-losses[real].sum().item(), rel=1e-5)


def test_a_hook_of_the_output_layer_is_called():
    model, batch, expected = objective(0.1)
    calls = []
    model.output.register_forward_hook(lambda *_: calls.append(1))
    assert Objective(model, 0.1)(batch).item() == pytest.approx(expected.item(), rel=1e-6)
    assert calls


def test_consistency_adds_the_divergence_of_two_readings():
    """The halves of the doubled batch have dropout masks of their own; the loss is computed here from its logits."""
    model, batch, alone = objective(0.1)
    assert Objective(model, 0.1, consistency=5.0)(batch).item() == pytest.approx(alone.item())
    model.dropout.rate = 0.5
    model.train()
    logits = []
    model.output.register_forward_hook(lambda *called: logits.append(called[-1]))
    loss = Objective(model, 0.1, consistency=3.0)(batch)
    assert len(logits) == 1
    real = torch.arange(3) < batch.target_lengths[:, None]
    targets = batch.target_out[real]
    ours, theirs = logits[0].double().chunk(2)
    divergence = sum(
        F.cross_entropy(each, targets, reduction="sum", label_smoothing=0.1)
        for each in (ours, theirs)
    )
    p, q = ours.log_softmax(-1), theirs.log_softmax(-1)
    apart = F.kl_div(q, p, log_target=True, reduction="sum")
    apart = (apart + F.kl_div(p, q, log_target=True, reduction="sum")) / 2
    assert apart > 0.01
    assert loss.item() == pytest.approx((divergence + 3 * apart).item() / 2, rel=1e-5)
