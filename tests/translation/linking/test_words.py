"""The plain rules that split lines into words."""

from __future__ import annotations

import pytest

from regard.translation.linking.words import words_of


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", ""),
        ("¿Qué? ¡No!", "¿ Qué ? ¡ No !"),
        ("l’eau d'Aujourd'hui", "l’ eau d' Aujourd' hui"),
        ("It's what they’ll say: don't.", "It 's what they ’ll say : don 't ."),
        ("1,000.50 or 12:30, 3.", "1,000.50 or 12:30 , 3 ."),
        ("हिन्दी में", "हिन्दी में"),
        ("don\u0301de", "don\u0301de"),
        ("a--b ... «c»", "a -- b ... « c »"),
        ("我们 go", "我们 go"),
    ],
)
def test_marks_are_split_off_words(line, words):
    assert words_of(line) == [*map(normalised, words.split())]


def normalised(word: str) -> str:
    return word.replace("n\u0301", "\u0144")


def test_scripts_without_spaces_are_split_into_characters_on_request():
    assert words_of("我们go。", characters=True) == ["我", "们", "go", "。"]
