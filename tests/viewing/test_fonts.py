"""Fonts: the characters that DejaVu Sans lacks come from another installed family."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fontTools.fontBuilder import FontBuilder
from matplotlib import font_manager
from matplotlib.figure import Figure

from regard.viewing import fonts

RARE = "\U000f0000"  # private use: no ordinary font has it, so that only the one made here can


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[str]:
    """A family of one character more than the machine has."""
    path, name = tmp_path / "rare.ttf", "Regard Rare"
    builder = FontBuilder(1000)
    builder.setupGlyphOrder([".notdef", "rare"])
    builder.setupCharacterMap({ord(RARE): "rare"})
    builder.setupGlyf({".notdef": _empty(), "rare": _empty()})
    builder.setupHorizontalMetrics({".notdef": (500, 0), "rare": (500, 0)})
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": name, "styleName": "Regular"})
    builder.setupOS2()
    builder.setupPost()
    builder.save(path)
    fonts_before = list(font_manager.fontManager.ttflist)
    font_manager.fontManager.addfont(path)
    _forget()
    yield name
    font_manager.fontManager.ttflist[:] = fonts_before
    _forget()


def _empty() -> object:
    from fontTools.pens.ttGlyphPen import TTGlyphPen

    return TTGlyphPen(None).glyph()


def _forget() -> None:
    for cached in (fonts.families, fonts._installed, fonts._characters):
        cached.cache_clear()


def missing(texts: list[str]) -> str:
    figure = Figure()
    for text in texts:
        figure.text(0, 0, text)
    return fonts.missing(figure)


def test_a_family_that_has_the_character_is_found(installed: str) -> None:
    assert fonts.families("abc é") == (fonts.FIRST,)
    assert fonts.families(f"a{RARE}") == (fonts.FIRST, installed)
    assert missing([f"a{RARE}"]) == ""


def test_characters_that_no_family_has_are_listed_once() -> None:
    message = missing([f"a{RARE}", RARE, "é"])
    assert message.startswith(f"no installed font has {RARE} (U+F0000): they are drawn as boxes;")
    eight_missing = missing([chr(ord(RARE) + place) for place in range(8)])
    assert "and 3 more" in eight_missing
    assert missing(["a é → مرحبا"]) == ""
