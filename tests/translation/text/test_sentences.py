"""Sentences out of text: nothing is lost, and what is between them stays where it was."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from regard.errors import ConfigurationError, DataError
from regard.translation.text import sentences
from regard.translation.text.sentences import join, paragraphs, split


def texts(text: str, language: str = "es") -> list[str]:
    return [part.text for part in split(text, language) if part.text]


def test_sentences_end_where_they_end_and_not_after_an_abbreviation():
    found = split("El Sr. García llegó tarde.  ¿Dónde estaba?\n¡No lo sé!", "es")
    assert [part.text for part in found] == [
        "El Sr. García llegó tarde.",
        "¿Dónde estaba?",
        "¡No lo sé!",
    ]
    assert [part.after for part in found] == ["  ", "\n", ""]


def test_a_sentence_goes_on_after_a_line_break_but_not_after_an_empty_line():
    assert texts("Tiene un jardín en el que\njuegan los niños.") == [
        "Tiene un jardín en el que\njuegan los niños."
    ]
    assert texts("Título\n\nTexto") == ["Título", "Texto"]


def test_items_of_a_list_are_sentences_without_their_marks():
    text = "Compra:\n- pan\n* leche fresca\n  2) sal\n# Fin\nA las 3. Ya\n"
    found = [part for part in split(text, "es") if part.text]
    assert [part.text for part in found][:4] == ["Compra:", "pan", "leche fresca", "sal"]
    assert [part.before for part in found][:5] == ["", "- ", "* ", "  2) ", "# "]
    assert texts("- \n-\n3.") == ["- \n-\n3."]


@given(
    st.text(
        st.sampled_from("aB. ?!\n\r\t-*#1)\u2028\x85\u3000\xa0\u202f。日’«»e\u0301"), max_size=60
    )
)
@example("Plan B\xa0. Oui.")
def test_nothing_is_lost(text):
    parts = split(text, "es")
    assert join(parts, [part.text for part in parts]) == text
    assert all(part.text == part.text.strip() for part in parts)
    assert all(
        not (part.before + part.after).strip("-*#1.) \n\r\t\u2028\x85\u3000\xa0\u202f")
        for part in parts
    )


def test_what_is_no_text_becomes_text():
    assert [part.text for part in split("a \ud800. B", "es")] == ["a \ufffd.", "B"]


def test_translations_take_the_places_of_sentences():
    parts = split("  Uno. Dos.\n\n- Tres\n", "es")
    numbers = iter("123")
    said = [next(numbers) if part.text else "" for part in parts]
    assert join(parts, said) == "  1 2\n\n- 3\n"
    with pytest.raises(ValueError, match="shorter"):
        join(parts, said[1:])


def test_lines_become_paragraphs_as_they_come():
    lines = ["a", "b", "", "", "c", " ", "d"]
    assert list(paragraphs(lines)) == ["a\nb\n\n\n", "c\n \n", "d\n"]
    assert list(paragraphs([])) == []
    assert list(paragraphs(["", "a"])) == ["\n", "a\n"]
    assert "".join(paragraphs(lines)) == "".join(line + "\n" for line in lines)


def test_a_paragraph_before_a_line_that_cannot_be_read_is_not_lost():
    def lines() -> Iterator[str]:
        yield from ("One", "two.")
        raise DataError("standard input:3: byte 1")

    found = paragraphs(lines())
    assert next(found) == "One\ntwo.\n"
    with pytest.raises(DataError, match="standard input:3"):
        next(found)


def test_an_endless_paragraph_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(sentences, "_LONGEST_PARAGRAPH", 10)
    found = paragraphs(itertools.repeat("abcd"))
    assert [next(found) for _ in range(2)] == ["abcd\n" * 2] * 2
    empty = paragraphs(itertools.repeat(""))
    assert len(next(empty)) == 10


def test_without_sentencex_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencex", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'regard\[paragraphs\]'"):
        split("a", "es")
