"""Histograms of lengths and frames round links: what is drawn, read back from the figure."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.patches import Rectangle, StepPatch

from regard.viewing import figures
from regard.viewing.alignment import Alignment
from regard.viewing.charts import histograms
from regard.viewing.pictures import linked


def test_shares_of_each_length_are_drawn_on_one_scale() -> None:
    splits = [
        ("train", {"source": {1: 3, 2: 1}, "target": {2: 4}}),
        ("test", {"source": {4: 1}, "target": {4: 1}}),
    ]
    figure = histograms(splits, unit="words")
    train, test = figure.axes
    assert train.get_xlim() == test.get_xlim() == (0.5, 4.5)
    shares = [
        patch.get_data().values
        for patch in train.patches
        if isinstance(patch, StepPatch) and not patch.get_fill()
    ]
    np.testing.assert_allclose(shares, [[75, 25, 0, 0], [0, 100, 0, 0]])
    assert "train: 4 pairs" in train.get_title(loc="left")
    assert test.get_xlabel() == "words of a sentence"
    assert figures.render(figure, "png").startswith(b"\x89PNG")


def test_what_is_longer_than_the_scale_is_in_its_last_bin() -> None:
    figure = histograms([("a", {"source": {1: 999, 1000: 1}})], unit="pieces")
    (axes,) = figure.axes
    assert axes.get_xlabel() == "pieces of a sentence (the last bin: and more)"
    line = next(p for p in axes.patches if isinstance(p, StepPatch) and not p.get_fill())
    assert sum(line.get_data().values) == pytest.approx(100)


def test_an_empty_split_is_an_empty_panel() -> None:
    assert len(histograms([("a", {"source": {}, "target": {}})]).axes) == 1


def test_links_are_framed_where_their_words_meet() -> None:
    alignment = Alignment(np.eye(2, 3), ["a", "b"], ["x", "y", "z"])
    figure = linked(alignment, {(0, 0), (2, 1)})
    frames = [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]
    assert sorted(frame.get_xy() for frame in frames) == [(0, 0), (2, 1)]
