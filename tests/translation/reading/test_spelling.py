"""Spelling: what one typing error makes of a known word is read as that word, where the translation becomes clearer."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.translation.reading.translators import Answers

from regard.translation.reading.sentences import translate
from regard.translation.results import Translation
from regard.translation.settings.search import Search
from regard.translation.text.corpora import Pair
from regard.translation.training.noise import mistyped
from regard.translation.words import KnownWords

TEXT = ["El gato negro duerme en la cocina.", "Tom tiene una casa grande.", "Una casa negra."]
KNOWN = KnownWords.learn([Pair(text, "x") for text in TEXT])


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("El gtao duerme.", "El gato duerme."),
        ("El gaato duerme.", "El gato duerme."),
        ("El gat duerme.", "El gat duerme."),  # short words have too many neighbours
        ("Tom duemre.", "Tom duerme."),
        ("la CSAA", "la CSAA"),  # a capital inside a sentence may begin a name
        ("una csaa", "una casa"),
        ("una xyzzy", "una xyzzy"),
        ("negro", "negro"),
        ("", ""),
        ("z" * 10**6, "z" * 10**6),
    ],
)
def test_unknown_words_are_read_as_their_neighbours(typed, read):
    assert KNOWN.corrected(typed) == read


@pytest.mark.parametrize("word", ["McDonald", "iPhone", "DiCaprio", "Xiomara"])
def test_words_with_capitals_that_are_like_no_other_stay(word):
    assert KNOWN.corrected(f"{word} duerme.") == f"{word} duerme."


@given(st.integers(0, 10**6))
def test_every_single_error_is_found(seed):
    text = "la cocina grande"
    assert KNOWN.corrected(mistyped(text, Random(seed))) == text


def of(probability: float) -> Translation:
    return Translation("s", "t", log_probability=probability, target_pieces=["a", "b"])


@pytest.mark.parametrize(
    ("log_probability", "is_kept"), [(-1.0, True), (-1.7, False), (-3.0, False)]
)
def test_another_spelling_must_be_clearly_more_probable(log_probability, is_kept):
    probabilities = {"la csaa": -2.0, "la casa": log_probability}
    batches = []

    def answers(texts):
        batches.append(texts)
        return [replace(of(probabilities[text]), source=text) for text in texts]

    typed, right = translate(
        ["la csaa", "la casa"], Answers(answers), Search(inventions=False), words=KNOWN, doubts=None
    )
    assert batches == [["la csaa", "la casa", "la casa"]]
    assert typed.log_probability == (log_probability if is_kept else -2.0)
    assert typed.read_as == ({"csaa": "casa"} if is_kept else {})
    assert right.log_probability == log_probability
    assert not right.read_as
