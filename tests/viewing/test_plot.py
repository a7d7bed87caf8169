"""`regard.plot`: figures of looks and of translations, with their words."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import regard
from regard.attention.looks import StoredLook
from regard.attention.shapes import ShapeError
from regard.translation.results import Translation

WEIGHTS = torch.tensor([[[[0.9, 0.1], [0.2, 0.8]], [[0.7, 0.3], [0.4, 0.6]]]])
LOOK = StoredLook(WEIGHTS)
TRANSLATED = Translation(
    "el gato",
    "the cat",
    source_pieces=["▁el", "▁gato"],
    target_pieces=["▁the", "▁cat"],
    looks={"encoder.0.self": LOOK, "decoder.0.cross": LOOK, "decoder.1.cross": LOOK[:, :1]},
)


def words(figure: Any) -> set[str]:
    texts = [text for axes in figure.axes for text in axes.texts]
    texts += [label for axes in figure.axes for label in axes.get_yticklabels()]
    texts += [label for axes in figure.axes for label in axes.get_xticklabels()]
    texts += [axes.title for axes in figure.axes]
    return {text.get_text() for text in [*texts, *figure.texts]}


def test_a_look_has_a_panel_for_each_head_with_its_words() -> None:
    figure = regard.plot(LOOK[0], queries=["the", "cat"], keys=["el", "gato"], title="Once")
    assert {"the", "cat", "el", "gato", "Once"} <= words(figure)
    assert len(figure.axes) == 3  # two heads and the scale
    assert len(regard.plot(LOOK[0], head=1).axes) == 2


def test_a_translation_is_drawn_with_its_own_words() -> None:
    figure = regard.plot(TRANSLATED)
    assert {"the", "cat", "el", "gato", "decoder.1.cross"} <= words(figure)
    assert "90" in words(figure)  # of the only head of the last layer
    mean = words(regard.plot(TRANSLATED, name="decoder.0.cross"))
    assert {"80", "decoder.0.cross"} <= mean
    own_words = words(regard.plot(TRANSLATED, name="decoder.0.cross", head=1, title="Second"))
    assert {"70", "Second"} <= own_words
    itself = words(regard.plot(TRANSLATED, name="encoder.0.self"))
    assert {"el", "gato"} <= itself
    assert "the" not in itself


@pytest.mark.parametrize(
    ("value", "options", "error", "message"),
    [
        (TRANSLATED, {"name": "decoder.7.cross"}, ValueError, "no look 'decoder.7.cross': there"),
        (Translation("a", "b"), {}, ValueError, "there are none: translate with looks=True"),
        (TRANSLATED, {"queries": ["a"]}, TypeError, "queries is only for a look"),
        (TRANSLATED, {"reduce": "max"}, TypeError, "reduce is only for a look"),
        (LOOK, {"name": "decoder.0.cross"}, TypeError, "which is only for a translation"),
        (LOOK[0], {"queries": ["a"]}, ShapeError, "pass one for each query"),
        (WEIGHTS, {}, TypeError, "got a Tensor: pass a look or a translation"),
        (LOOK, {"theme": "grey"}, ValueError, "grey"),
    ],
)
def test_what_cannot_be_drawn_is_refused(
    value: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        regard.plot(value, **options)
