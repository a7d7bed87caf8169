"""Tokens are shown as the text that they spell."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some
from tests.explorer.languages import Bytes

from regard.watching.spelling import SPLIT, encoded, join, spelled, words


def test_bytes_are_characters_again():
    assert spelled(Bytes(), list(b" in\n")) == ["▁", "i", "n", "\n"]


@given(some.text(some.characters(exclude_categories=["Cs"], exclude_characters="▁⟨⟩ "), min_size=1))
def test_the_characters_of_a_text_are_its_labels(text):
    labels = spelled(Bytes(), encoded(Bytes(), text))
    assert join(labels) == text
    assert len(labels) == len(text.encode())
    for label, byte in zip(labels, text.encode(), strict=True):
        assert (SPLIT.match(label) is None) == (byte < 0x80)


@pytest.mark.parametrize(
    ("content", "labels"),
    [
        (b"\xff", ["⟨FF⟩"]),
        (b"\xc3x", ["⟨C3⟩", "x"]),
        ("é".encode(), ["⟨C3⟩é", "⟨A9⟩é"]),
        (b"\xc3\xa9\xc3", ["⟨C3⟩é", "⟨A9⟩é", "⟨C3⟩"]),
    ],
    ids=str,
)
def test_bytes_that_are_no_character_are_written_out(content, labels):
    assert spelled(Bytes(), list(content)) == labels


def test_tokens_that_may_come_next_do_not_join():
    assert spelled(Bytes(), list("é".encode()), apart=True) == ["⟨C3⟩", "⟨A9⟩"]


def test_other_tokenizers_keep_their_pieces():
    class Pieces:
        def encode(self, text):
            return [0, 1]

        def decode(self, ids):
            return "".join("ab"[number] for number in ids)

    assert spelled(Pieces(), [1, 0]) == ["b", "a"]
    assert spelled(lambda ids: ["Ġx" for _ in ids], [1]) == ["Ġx"]
    with pytest.raises(TypeError, match="convert_ids_to_tokens"):
        spelled(4, [1])


def test_words_end_at_spaces_lines_and_special_tokens():
    labels = ["▁New", "York", "\n", "is", "▁big", "</s>"]
    assert words(labels) == [
        (0, 2, "NewYork"),
        (2, 3, "\n"),
        (3, 4, "is"),
        (4, 5, "big"),
        (5, 6, "</s>"),
    ]
    assert words(["a", "b"]) == []
