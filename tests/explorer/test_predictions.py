"""The log-probabilities of next tokens."""

from __future__ import annotations

import pytest
import torch

from regard.explorer.prompt_runs import Predictions


@pytest.mark.parametrize("shift", [0.0, 1e6, -1e6])
def test_log_probabilities_of_large_logits_keep_their_digits(shift):
    logits = (torch.arange(12.0).view(3, 4) * 0.75).remainder(2.0) + shift
    base = Predictions(logits.flip(1), [0, 1, 2])
    base.rows(None, lambda ids: [str(each) for each in ids])
    rows = Predictions(logits, [0, 1, 2]).rows(base, lambda ids: [str(each) for each in ids])
    expected = logits.double().log_softmax(-1)
    for row, scores in zip(rows, expected, strict=True):
        for entry in row:
            assert entry["log_probability"] == pytest.approx(float(scores[entry["id"]]), abs=1e-6)
