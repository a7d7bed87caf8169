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


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("我们go。", "我 们 go 。"),
        ("他有３只“iPhone 15”", "他 有 ３ 只 “ iPhone 15 ”"),
        ("東京タワー・本", "東 京 タ ワ ー ・ 本"),
        ("人々々", "人 々 々"),
        ("か\u309aｶﾞｷ", "か\u309a ｶﾞ ｷ"),  # the mark of voice belongs to its letter
        ("葛\U000e0100城𠮷", "葛\U000e0100 城 𠮷"),  # and that of a variant
        ("กินปลา ๑๒", "กิ น ป ล า ๑๒"),
        ("ไม่", "ไ ม่"),
        ("한국어 text", "한국어 text"),
    ],
)
def test_scripts_without_spaces_are_split_into_characters_on_request(line, words):
    assert words_of(line, characters=True) == words.split(" ")
