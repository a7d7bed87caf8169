"""Our own translators, whose compiled loops no watch can look into: while one is open, their layers do the work."""

from __future__ import annotations

import torch
from tests.translation.decoding.toy import beam
from tests.translation.engines.test_compiled import LENGTHS, small, source

import regard

WHOLE = {
    *("encoder.0.self", "encoder.1.self"),
    *("decoder.0.self", "decoder.0.cross", "decoder.1.self", "decoder.1.cross"),
}


def searched(model):
    return [one[0].tokens for one in beam(model, source(), LENGTHS, size=2, max_length=5)]


def test_a_search_is_seen_and_finds_the_same():
    model = small()
    unwatched = searched(model)
    with regard.watch(model) as attentions:
        assert searched(model) == unwatched
    assert set(attentions) == WHOLE
    assert not attentions.unseen


def test_a_training_pass_is_seen():
    model, target = small(), source()
    inputs = source(), LENGTHS, target
    unwatched = model.hidden(*inputs)
    with regard.watch(model) as attentions:
        torch.testing.assert_close(model.hidden(*inputs), unwatched, atol=2e-5, rtol=2e-5)
    assert set(attentions) == WHOLE
