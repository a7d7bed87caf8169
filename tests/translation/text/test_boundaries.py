"""Boundaries: sentences are found in text without marks."""

from random import Random

import pytest

from regard.translation.text.boundaries import Boundaries

SUBJECTS, VERBS, PLACES = (
    ("Tom", "Mary", "ella", "mi gato"),
    ("come", "duerme", "vive"),
    ("aquí", "en casa", "hoy"),
)


@pytest.fixture(scope="module")
def boundaries():
    random = Random(3)
    draws = (
        (random.choice(SUBJECTS), random.choice(VERBS), random.choice(PLACES)) for _ in range(2000)
    )
    return Boundaries.learn([" ".join(words) + "." for words in draws])


def test_sentences_without_marks_are_divided(boundaries):
    text = "ella duerme hoy mi gato vive en casa tom come aquí"
    assert boundaries.divided(text) == ["ella duerme hoy", "mi gato vive en casa", "tom come aquí"]


@pytest.mark.parametrize("text", ["", "ella", "ella duerme", "ella  duerme   hoy", "x" * 10**5])
def test_a_sentence_alone_stays_to_the_character(boundaries, text):
    assert boundaries.divided(text) == [text]


def test_it_is_the_same_each_time_and_after_json(boundaries):
    assert Boundaries.model_validate_json(boundaries.model_dump_json()) == boundaries
    assert Boundaries.learn(["Tom come."] * 999) is None
