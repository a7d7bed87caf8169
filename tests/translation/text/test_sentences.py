"""Sentences out of text: nothing is lost, and what is between them stays where it was."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from regard.errors import DataError
from regard.translation.text import sentences
from regard.translation.text.sentences import join, of_line, paragraphs, split


def texts(text: str, language: str = "es") -> list[str]:
    return [part.text for part in split(text, language) if part.text]


def test_sentences_end_where_they_end_and_not_after_an_abbreviation():
    sentences = split("El Sr. García llegó tarde.  ¿Dónde estaba?\n¡No lo sé!", "es")
    assert [part.text for part in sentences] == [
        "El Sr. García llegó tarde.",
        "¿Dónde estaba?",
        "¡No lo sé!",
    ]
    assert [part.after for part in sentences] == ["  ", "\n", ""]


def test_a_sentence_goes_on_after_a_line_break_but_not_after_an_empty_line():
    assert texts("Tiene un jardín en el que\njuegan los niños.") == [
        "Tiene un jardín en el que\njuegan los niños."
    ]
    assert texts("Título\n\nTexto") == ["Título", "Texto"]


def test_items_of_a_list_are_sentences_without_their_marks():
    text = "Compra:\n- pan\n* leche fresca\n  2) sal\n# Fin\nA las 3. Ya\n"
    items = [part for part in split(text, "es") if part.text]
    assert [part.text for part in items][:4] == ["Compra:", "pan", "leche fresca", "sal"]
    assert [part.before for part in items][:5] == ["", "- ", "* ", "  2) ", "# "]
    assert texts("- \n-\n3.") == ["- \n-\n3."]


@given(
    st.text(
        st.sampled_from("aB. ?!\n\r\t-*#1)\u2028\x85\u3000\xa0\u202f。日’«»e\u0301"), max_size=60
    )
)
@example("Plan B\xa0. Oui.")
def test_nothing_is_lost(text):
    sentences = split(text, "es")
    assert join(sentences, [part.text for part in sentences]) == text
    assert all(part.text == part.text.strip() for part in sentences)
    assert all(
        not (part.before + part.after).strip("-*#1.) \n\r\t\u2028\x85\u3000\xa0\u202f")
        for part in sentences
    )


def test_what_is_no_text_becomes_text():
    assert [part.text for part in split("a \ud800. B", "es")] == ["a \ufffd.", "B"]


def test_translations_take_the_places_of_sentences():
    sentences = split("  Uno. Dos.\n\n- Tres\n", "es")
    numbers = iter("123")
    message = [next(numbers) if part.text else "" for part in sentences]
    assert join(sentences, message) == "  1 2\n\n- 3\n"
    with pytest.raises(ValueError, match="shorter"):
        join(sentences, message[1:])


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

    actual = paragraphs(lines())
    assert next(actual) == "One\ntwo.\n"
    with pytest.raises(DataError, match="standard input:3"):
        next(actual)


def test_an_endless_paragraph_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(sentences, "_LONGEST_PARAGRAPH", 10)
    actual = paragraphs(itertools.repeat("abcd"))
    assert [next(actual) for _ in range(2)] == ["abcd\n" * 2] * 2
    empty = paragraphs(itertools.repeat(""))
    assert len(next(empty)) == 10


@pytest.mark.parametrize(
    ("language", "line"),
    [
        ("es", "El Dr. Perry vive aquí.| Cuesta 3.5 euros."),
        ("es", "Está bien.| Vamos.| No.| Compré un auto.| Sí."),
        ("es", "Vino Dña. Ana a las 10 a.m. y salió.| Fin"),
        ("es", "J. R. R. Tolkien y D. Juan.| Nací el 3. de mayo."),
        ("es", "—¿Vienes? —preguntó Ana.| —No."),
        ("es", "hola.| qué tal.| ¡bien!"),
        ("es", "1. Hola. ... 🙂"),
        ("es", "Hola.|¿Qué tal?| Lee www.regard.org."),
        ("en", "Give it to me.| It is OK.| Ms. Smith, No. 5, said no.| Go."),
        ("fr", "M. Dupont et Mme. Petit dorment.| Vraiment ?"),
        ("zh", "今天。|明天。"),
        ("es", " - Uno.  "),
    ],
)
def test_the_sentences_of_a_line(language, line):
    sentences = of_line(line.replace("|", ""), language)
    assert "|".join(part.text + part.after for part in sentences) == re.sub(r"\|( ?)", r"\1|", line)


def test_what_stands_between_sentences_stays_on_the_line():
    assert [part.after for part in of_line(" Uno.  Dos.\u2028\tTres. ", "es")] == ["  ", "  ", ""]


def test_joined_sentences_of_a_corpus_are_found_again(data_folder):
    path = data_folder / "tatoeba-spa-eng" / "valid.tsv"
    with path.open(encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t")[1] for line in file]
    alone = [row for row in rows if len(of_line(row, "es")) == 1]
    assert len(alone) > 0.99 * len(rows)
    for i in range(0, len(alone) - 4, 4):
        sentences = of_line(" ".join(alone[i : i + 4]), "es")
        assert [part.text for part in sentences] == alone[i : i + 4]
