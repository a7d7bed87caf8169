"""Corpora of unequal worth: a pass takes each pair as often as its weight says, on average."""

from __future__ import annotations

import numpy as np

from regard.translation.text.batches import draw_rows


def test_whole_weights_are_counts_and_need_no_luck():
    weights = np.array([1.0, 3.0, 2.0])
    for seed in range(5):
        rows = draw_rows(weights, np.random.default_rng(seed))
        assert rows.tolist() == [0, 1, 1, 1, 2, 2]


def test_the_rest_of_a_weight_is_its_odds_and_drawn_anew():
    weights = np.repeat([0.25, 1.5], 4000)
    random = np.random.default_rng(7)
    first_rows, two = draw_rows(weights, random), draw_rows(weights, random)
    assert first_rows.tolist() != two.tolist()
    for rows in (first_rows, two):
        assert abs((rows < 4000).sum() - 1000) < 4 * np.sqrt(4000 * 0.25 * 0.75)
        assert abs((rows >= 4000).sum() - 6000) < 4 * np.sqrt(4000 * 0.25)
        assert np.bincount(rows, minlength=8000)[4000:].min() == 1


def test_a_pass_is_never_of_nothing():
    for seed in range(20):
        assert len(draw_rows(np.full(3, 1e-6), np.random.default_rng(seed))) == 1
    assert len(draw_rows(np.empty(0), np.random.default_rng(1))) == 0
