"""Trigrams tell languages apart, and their table is small and the same each time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from regard.translation.text.trigrams import Trigrams, words


def test_costs_are_bits():
    trigrams = Trigrams.learn(["la la la sol"])
    # Of nine trigrams two are there three times, and three once.
    assert {cost: len(text) // 3 for cost, text in trigrams.costs.items()} == {"2": 2, "3": 3}
    assert trigrams.unseen == 4
    assert trigrams.cost("la") == 2
    assert trigrams.cost("xyz") == trigrams.unseen
    assert trigrams.letters == set("laso")


@given(st.lists(st.text(max_size=20), max_size=20))
def test_any_text_can_be_learnt_stored_and_read(lines):
    trigrams = Trigrams.learn(lines)
    reread = Trigrams.model_validate_json(trigrams.model_dump_json())
    assert reread == trigrams
    for word in words(" ".join(lines)):
        assert 0 <= reread.cost(word) <= reread.unseen


def test_a_table_of_something_else_is_refused():
    with pytest.raises(ValidationError):
        Trigrams.model_validate_json('{"costs": {}, "unseen": 1.5}')
