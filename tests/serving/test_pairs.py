"""The models of a server by their languages."""

from __future__ import annotations

import pytest

from regard.errors import ConfigurationError, ModelError
from regard.serving.errors import Refused
from regard.serving.pairs import Pair, Pairs


@pytest.fixture(scope="module")
def pairs() -> Pairs:
    return Pairs(["es-en-tiny", "en-es"])


def test_models_have_different_pairs():
    with pytest.raises(ConfigurationError, match="as es-en-tiny does"):
        Pairs(["es-en-tiny", "es-en-tiny"])
    with pytest.raises(ModelError, match="nowhere"):
        Pairs(["nowhere"])


def test_pairs_that_no_model_has_are_refused(pairs):
    assert pairs.pair("es", "en") == Pair("es", "en")
    assert pairs.pair("en", "en") == Pair("en", "en")
    for source, target in (("fr", "en"), ("es", "fr"), ("fr", "fr"), ("", "")):
        with pytest.raises(Refused, match="there is es to en, en to es"):
            pairs.pair(source, target)


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("¿Dónde está la estación?", "es"),
        ("Me gusta leer libros en la cama.", "es"),
        ("Where is the station?", "en"),
        ("I like to read books in bed.", "en"),
    ],
)
def test_languages_are_detected(pairs, text, language):
    best, second = pairs.detect(text)
    assert best.language == language
    assert best.confidence > second.confidence
    assert best.confidence + second.confidence == pytest.approx(100, abs=0.2)


@pytest.mark.parametrize("text", ["", "12 %", "我喜欢读书", "Ελλάδα και Κύπρος"])
def test_other_texts_have_no_confidence(pairs, text):
    assert [guess.confidence for guess in pairs.detect(text)] == [0, 0]
