"""Trigrams tell languages apart, and their table is small and the same each time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from regard.translation.text.trigrams import Trigrams, words


def test_costs_are_bits():
    found = Trigrams.learn(["la la la sol"])
    # Of nine trigrams two are there three times, and three once.
    assert {cost: len(text) // 3 for cost, text in found.costs.items()} == {"2": 2, "3": 3}
    assert found.unseen == 4
    assert found.cost("la") == 2
    assert found.cost("xyz") == found.unseen
    assert found.letters == set("laso")


@given(st.lists(st.text(max_size=20), max_size=20))
def test_any_text_can_be_learnt_stored_and_read(lines):
    found = Trigrams.learn(lines)
    again = Trigrams.model_validate_json(found.model_dump_json())
    assert again == found
    for word in words(" ".join(lines)):
        assert 0 <= again.cost(word) <= again.unseen


def test_a_table_of_something_else_is_refused():
    with pytest.raises(ValidationError):
        Trigrams.model_validate_json('{"costs": {}, "unseen": 1.5}')
