"""Numbers as both sides write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.translation.text.corpora import Pair
from regard.translation.text.numbers import Marks

SPANISH, FRENCH = Marks(".", ","), Marks(" ", ",")
GROUPS = st.lists(st.integers(0, 999).map("{:03}".format), min_size=1, max_size=2)


def test_marks_are_those_that_the_text_shows():
    pairs = [Pair("It costs 1,000,000 yen.", "Cela coûte 1 000 000 yens.")] * 5
    assert Marks.learn(pairs) == Marks(",", " ")
    assert Marks.learn(pairs[:4]) == Marks("", "")
    assert Marks.learn(pairs).grouped(["7", "008", "090"]) == ("7,008,090", "7 008 090")
    assert Marks.learn(pairs).decimal("0", "5") == ("0.5", "0,5")
    assert Marks("", "").grouped(["7", "008"]) == ("7008", "7008")
    assert Marks("", "").decimal("0", "5") == ("0.5", "0.5")


@pytest.mark.parametrize(
    ("number", "text"),
    [
        ("7", "7"),
        ("1.234", "1,234"),
        ("12.345.678", "12,345,678"),
        ("900.000.000", "900,000,000"),
        ("963.360.788", "963,360,788"),
        ("1.234,56", "1,234.56"),
        ("12.000,5", "12,000.5"),
        ("1234.567", "1234.567"),
        ("0,75", "0.75"),
        ("1,234", "1,234"),  # thousands to some, a decimal to others
        ("0,755", "0.755"),
        ("18:30", "18:30"),
        ("3/12/1999", "3/12/1999"),
        ("20.9.3", "20.9.3"),
        ("4.2", "4.2"),
    ],
)
def test_a_number_is_written_as_the_target_writes_it(number, text):
    assert SPANISH.as_target(number) == text
    assert Marks("", ",").as_target(number) == number


def test_long_numbers_that_count_nothing_are_telephone_numbers():
    assert SPANISH.as_target("963.360.788", counts=False) == "963.360.788"
    assert SPANISH.as_target("900.000.000", counts=False) == "900,000,000"
    assert SPANISH.as_target("63.360.788", counts=False) == "63,360,788"


@given(st.integers(1, 99).map(str), GROUPS)
def test_writing_a_number_back_restores_it(first_group, groups):
    present_text = ".".join([first_group, *groups])
    assert Marks(",", ".").as_target(SPANISH.as_target(present_text)) == present_text


def test_numbers_with_spaces_are_one_number_where_the_source_writes_so():
    text = "1 234 567 habitants en 2020, 12 345,5 de plus."
    assert [found[0] for found in FRENCH.numbers(text)] == ["1 234 567", "2020", "12 345,5"]
    assert [found[0] for found in SPANISH.numbers("1 234 y 5,5")] == ["1", "234", "5,5"]
