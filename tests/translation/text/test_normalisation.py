"""One normalisation for all: idempotent, whole, and quick whatever it is given."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.translation.text import normalisation
from regard.translation.text.normalisation import clean, normalise

# What the rules are about turns up more often than by chance.
odd = st.sampled_from(
    "\0\r\n\v\f\x1c\x1f\x7f\x85\u00a0\u202f\u2028\u2029\ufeff\u3000\u2581\u0301\u0316\u0344\u0f73 e\ud800\ue000"
    "\u00ad\u061c\u200b\u200e\u200f\u202a\u202e\u2060\u2066\u2069"
)
texts = st.lists(st.one_of(st.characters(), odd)).map("".join)


@settings(max_examples=100)
@given(texts)
def test_a_second_time_changes_nothing(text):
    assert normalise(normalise(text)) == normalise(text)


@settings(max_examples=100)
@given(texts)
def test_what_comes_out_is_one_clean_line(text):
    line = normalise(text)
    assert line == " ".join(line.split())
    assert not any(unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") for c in line)
    assert not {"\u2581", "\ufeff", "\u00ad", "\u200b", "\u200e", "\u202e"} & set(line)
    assert unicodedata.is_normalized("NFC", line)
    line.encode("utf-8")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("e\u0301", "\u00e9"),
        ("a\0b\rc\vd\x85e\u2028f", "a b c d e f"),
        ("\ufeffdi\u00adrec\u200bto \u200fאב\u200e \u2066x\u2069 \u061c\u2060", "directo אב x"),
        ("e\u00ad\u0301", "\u00e9"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("  a\u00a0\u202f b\t", "a b"),
        ("\u2581a\u2581", "_a_"),
        ("a\ud800b", "a\ufffdb"),
        ("<s> </s> @@ <0x41>", "<s> </s> @@ <0x41>"),
        ("👩\u200d👧 \u202eabc \U0010fffd", "👩\u200d👧 abc \U0010fffd"),
        ("ﬁ ² Ⅳ", "ﬁ ² Ⅳ"),
        (" \r\n ", ""),
    ],
)
def test_the_rules(text, line):
    assert normalise(text) == line


@settings(max_examples=200)
@given(texts)
def test_a_clean_text_has_the_words_of_the_normalised_one(text):
    words = [normalise(word) for word in clean(text).split()]
    assert words == normalise(text).split()
    assert normalise(clean(text)) == normalise(text)
    assert clean(clean(text)) == clean(text)


def test_no_printable_character_is_cleaned_away():
    """So a printable text is clean without a search."""
    printable = filter(str.isprintable, map(chr, range(0x110000)))
    text = "".join(printable)
    assert clean(text + "\0") == text + " "
    assert clean(text) == text


marks = st.sampled_from(
    [chr(c) for c in range(0x300, 0x36F)] + list("\u0f71\u0f73\u0f75\u0f81a가각")
)


@settings(max_examples=100)
@given(st.lists(marks).map("".join))
def test_ordering_marks_ahead_of_unicodedata_changes_nothing(text):
    ordered = unicodedata.normalize("NFC", normalisation._ordered(text))
    assert ordered == unicodedata.normalize("NFC", text)


@pytest.mark.parametrize("unit", ["\u0301\u0316", "\u0f73", "e", "e\u0301", "가"])
def test_a_line_of_a_megabyte_is_no_trouble(unit):
    """With time growing by the square, marks alone would keep this busy for an hour."""
    long = normalise("x" + unit * 50_000)
    assert long == normalise(long)
    assert unicodedata.is_normalized("NFC", long[:200])
