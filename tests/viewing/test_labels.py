"""Nothing in a label is invisible, reorders its surroundings or is endless."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from regard.viewing.labels import isolated, shorten, visible

anything = st.text(st.characters(exclude_categories=()), max_size=40)


SHOWN = {
    "a\u202eb": "a\\u202eb",
    "\x1b[31mred": "\\x1b[31mred",
    "line\nline\t\0": "line\\nline\\t\\x00",
    "\ud800": "\\ud800",
    "\u2028\ufeff\u200b": "\\u2028\\ufeff\\u200b",
    "👩\u200d🚀 é 家 مرحبا": "👩\u200d🚀 é 家 مرحبا",
}


def test_what_cannot_be_seen_is_written_out() -> None:
    assert {text: visible(text) for text in SHOWN} == SHOWN


def test_hundreds_of_marks_upon_one_letter_are_cut() -> None:
    assert visible("e" + "\u0301" * 500 + "x") == "e" + "\u0301" * 8 + "…" + "x"


@given(anything)
def test_visible_text_is_valid_utf8_without_controls(text: str) -> None:
    visible_text = visible(text)
    assert visible_text.encode("utf-8").decode("utf-8") == visible_text
    assert not any(unicodedata.category(c) in {"Cc", "Cs"} for c in visible_text)
    assert visible(visible_text) == visible_text


@given(anything, st.integers(1, 12))
def test_shortening_keeps_to_the_width_and_to_the_beginning(text: str, width: int) -> None:
    short = shorten(text, width)
    assert cell_len(short) <= width
    assert short == text or (short.endswith("…") and text.startswith(short[:-1]))


def test_wide_characters_take_two_columns() -> None:
    assert shorten("人工知能", 5) == "人工…"


def test_isolates_stay_where_they_have_an_end_and_are_escaped_elsewhere() -> None:
    pair = f"{isolated('مرحبا.')} → {isolated('Hello.')}"
    assert pair == "\u2068مرحبا.\u2069 → \u2068Hello.\u2069"
    assert visible(pair) == pair
    assert visible("a\u2069b\u2068c") == "a\\u2069b\\u2068c"
    assert isolated("a\u2069b") == "\u2068a\\u2069b\u2069"
    assert cell_len(isolated("ab")) == 2
