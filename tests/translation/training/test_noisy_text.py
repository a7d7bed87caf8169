"""Sentences written otherwise: each change does what it says and nothing else."""

from __future__ import annotations

import re
import unicodedata
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.translation.text.letters import in_small_letters, in_title_case, without_accents
from regard.translation.text.normalisation import normalise
from regard.translation.training.noise import emphasised, mistyped, without_marks

texts = st.text(max_size=30).map(normalise)
seeds = st.integers(0, 2**32)


def edits(a: str, b: str) -> int:
    """Damerau and Levenshtein's distance, neighbours exchanged as one edit."""
    rows = [[i + j if i * j == 0 else 0 for j in range(len(b) + 1)] for i in range(len(a) + 1)]
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            cost = a[i - 1] != b[j - 1]
            rows[i][j] = min(rows[i - 1][j] + 1, rows[i][j - 1] + 1, rows[i - 1][j - 1] + cost)
            if i > 1 and j > 1 and a[i - 1] == b[j - 2] and a[i - 2] == b[j - 1]:
                rows[i][j] = min(rows[i][j], rows[i - 2][j - 2] + 1)
    return rows[-1][-1]


@given(seeds)
def test_a_typing_error_is_one_edit_in_a_long_word(seed):
    text = "Sí, mi ñandú se llama Óscar y corre."
    noisy = mistyped(text, Random(seed))
    assert edits(text, noisy) == 1
    changed_words = [a for a, b in zip(text.split(), noisy.split(), strict=True) if a != b]
    assert len(changed_words) == 1
    assert changed_words[0] in ("ñandú", "llama", "Óscar", "corre.")


@pytest.mark.parametrize("text", ["", "Sí.", "12345 12:30", "aaaa", "¿¡!?"])
def test_what_has_no_long_word_gets_no_typing_error(text):
    assert mistyped(text, Random(1)) == text


@given(texts)
def test_no_accent_is_left_and_no_letter_is_lost(text):
    text = re.sub("[\u0400-\u04ff]", "", text)
    bare = without_accents(text)
    decomposed = unicodedata.normalize("NFD", bare)
    assert not any("\u0300" <= each <= "\u036f" for each in decomposed)
    letters = [
        each for each in unicodedata.normalize("NFD", text) if not "\u0300" <= each <= "\u036f"
    ]
    assert decomposed == unicodedata.normalize("NFD", "".join(letters))


@pytest.mark.parametrize("text", ["Чей", "воробьиный", "が", "हिन्दी"])
def test_marks_that_make_another_letter_are_no_accents(text):
    assert without_accents(text) == text
    assert without_accents("за́мок, ёж, ế") == "замок, еж, e"


@pytest.mark.parametrize(
    ("text", "opening", "final", "expected"),
    [
        ("¿Qué?", True, True, "Qué"),
        ("¡No...!", False, True, "¡No"),
        ("Il vient ?", False, True, "Il vient"),
        ("Cuesta 3.50.", True, True, "Cuesta 3.50"),
        ("أين هو؟", True, True, "أين هو"),
        ("...", True, True, "..."),
        ("¿?", True, True, "¿?"),
    ],
)
def test_marks_are_left_out_where_a_text_remains(text, opening, final, expected):
    assert without_marks(text, opening=opening, final=final) == expected


@given(texts, seeds)
def test_capitals_change_nothing_but_case(text, seed):
    emphasised_text = emphasised(text, Random(seed))
    assert emphasised_text.upper() == text.upper()
    assert sum(a != b for a, b in zip(text.split(), emphasised_text.split(), strict=True)) <= 1
    assert in_title_case(text).upper() == text.upper()


def test_every_word_gets_a_capital_and_no_letter_after_an_apostrophe():
    assert in_title_case("¿dónde está l'été, o'neill?") == "¿Dónde Está L'été, O'neill?"


@pytest.mark.parametrize(
    "text", ["Hola", "OTAN y UE", "A", "¿Y?", "123", "", "日本", "我爱NBA", "שלום NATO"]
)
def test_only_capitals_alone_are_read_in_small_letters(text):
    assert in_small_letters(text) == text
    assert in_small_letters("¡EL AÑO 2020!") == "¡el año 2020!"
