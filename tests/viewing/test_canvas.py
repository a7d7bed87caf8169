"""Titles that are cropped to the width of a figure."""

from __future__ import annotations

import pytest

from regard.viewing.canvas import fitted, measure

ISOLATE, END = "\u2068", "\u2069"


def test_a_title_that_fits_stays_as_it_is():
    assert fitted("El gato", 4.0) == "El gato"


@pytest.mark.parametrize("inches", [0.1, 1.0, 2.0])
@pytest.mark.parametrize("title", ["a long title " * 9, f"{ISOLATE}T{END}" * 26])
def test_cropping_a_title_ends_also_with_characters_of_no_width(title, inches):
    shortened = fitted(title, inches)
    assert len(shortened) < len(title)
    assert measure(shortened, 11.0, "bold") <= inches or len(shortened.strip(ISOLATE + END)) <= 1
