"""Saving: known formats, the same bytes every time, and whole files only."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from regard.errors import ConfigurationError
from regard.viewing import figures, fonts, pictures
from regard.viewing.alignment import Alignment

ALIGNMENT = Alignment([[0.9, 0.1], [0.2, 0.8]], ["a", "b"], ["x", "y"], "title")
BEGINNINGS = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


@pytest.mark.parametrize("ending", figures.FORMATS)
def test_each_format_is_written_and_the_same_twice(tmp_path: Path, ending: str) -> None:
    path = figures.save(pictures.heat_map(ALIGNMENT), tmp_path / f"one.{ending}")
    two = figures.save(pictures.heat_map(ALIGNMENT), tmp_path / f"two.{ending.upper()}")
    assert path.read_bytes() == two.read_bytes()
    assert path.read_bytes().startswith(BEGINNINGS[ending])
    assert not re.search(rb"CreationDate|<dc:date>", path.read_bytes())
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"one.{ending}", f"two.{ending.upper()}"]


def test_text_of_an_svg_is_text(tmp_path: Path) -> None:
    alignment = Alignment([[1.0]], ["家"], ["gato & <b>"], "title")
    text = figures.save(pictures.heat_map(alignment), tmp_path / "a.svg").read_text("utf-8")
    assert re.search(r"<text[^>]*>家</text>", text)
    assert "gato &amp; &lt;b&gt;</text>" in text


def test_characters_without_a_font_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fonts, "families", lambda text: (fonts.FIRST,))
    figure = pictures.heat_map(Alignment([[1.0]], ["家"], ["é مرحبا"], "🚀"))
    with pytest.warns(UserWarning, match=r"a\.png: no installed font has") as caught_warnings:
        figures.save(figure, tmp_path / "a.png")
    assert "家 (U+5BB6)" in str(caught_warnings[0].message)
    assert "🚀 (U+1F680)" in str(caught_warnings[0].message)
    assert "é" not in str(caught_warnings[0].message)


def test_an_unknown_ending_names_the_known(tmp_path: Path) -> None:
    for name in ("picture.jpg", "picture", ".png"):
        with pytest.raises(ConfigurationError, match=r"must end in \.png, \.svg, \.pdf"):
            figures.save(pictures.heat_map(ALIGNMENT), tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "picture.svg"
    path.write_bytes(b"old")
    failed: list[int] = []

    def full(descriptor: int) -> None:
        failed.append(descriptor)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space.*picture\.svg"):
        figures.save(pictures.heat_map(ALIGNMENT), path)
    assert failed
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
