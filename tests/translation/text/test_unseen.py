"""Pieces that no training source has: what training draws from decides, not the vocabulary."""

from __future__ import annotations

import pytest

from regard.translation.text.subwords import Segmenter
from regard.translation.text.tokenizer import Tokenizer
from regard.translation.text.unseen import UNSEEN, dump, read, unseen


@pytest.fixture(scope="module")
def letters() -> Tokenizer:
    """Its pieces of text are `▁a`, `▁c`, the letters without a space, the space and the digits."""
    return Tokenizer.train(["a b c", "c b a", "b a c"] * 50, vocabulary_size=290, tags=["x"])


def test_a_letter_that_is_always_a_word_is_not_seen_within_one(letters):
    found = unseen(letters, Segmenter(letters, ["a"], 0.0))
    assert found == {"a", "b", "c", "▁c", "▁", *"0123456789"}  # neither bytes nor the tag


def test_with_sampling_a_piece_is_seen_that_may_be_drawn(letters):
    found = unseen(letters, Segmenter(letters, ["a"], 0.5))
    assert found == {"b", "c", "▁c", *"0123456789"}


def test_what_is_written_is_read(tmp_path):
    pieces = frozenset({"▁a", "é", '"', "\x85"})
    (tmp_path / UNSEEN).write_bytes(dump(pieces))
    assert read(tmp_path / UNSEEN, None) == pieces
    assert dump(pieces) == dump(frozenset(sorted(pieces, reverse=True)))
