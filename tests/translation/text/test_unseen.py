"""Pieces that no training source has: what training draws from decides, not the vocabulary."""

from __future__ import annotations

import pytest

from regard.translation.runs import Tokenizers
from regard.translation.text.subwords import Segmenter
from regard.translation.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def letters() -> Tokenizer:
    """Its pieces of text are `▁a`, `▁c`, the letters without a space, the space and the digits."""
    return Tokenizer.train(["a b c", "c b a", "b a c"] * 50, vocabulary_size=290, tags=["x"])


def unseen(tokenizer: Tokenizer, alpha: float) -> frozenset[str]:
    segmenter = Segmenter(tokenizer, alpha)
    segmenter.words(["a"])
    return segmenter.unseen()


def test_a_letter_that_is_always_a_word_is_not_seen_within_one(letters):
    unseen_pieces = unseen(letters, 0.0)
    assert unseen_pieces == {"a", "b", "c", "▁c", "▁", *"0123456789"}  # neither bytes nor the tag


def test_with_sampling_a_piece_is_seen_that_may_be_drawn(letters):
    unseen_pieces = unseen(letters, 0.5)
    assert unseen_pieces == {"b", "c", "▁c", *"0123456789"}


def test_what_is_written_is_read(letters, tmp_path):
    pieces = frozenset({"▁a", "é", '"', "\x85"})
    for name, content in Tokenizers(letters, letters, pieces).files().items():
        (tmp_path / name).write_bytes(content)
    assert Tokenizers.open(tmp_path, True, {}).unseen == pieces


def test_a_letter_of_longer_pieces_alone_is_read():
    tokenizer = Tokenizer.train(["pan pan", "agua pan"] * 20, vocabulary_size=300)
    assert set("pan") <= Tokenizers(tokenizer, tokenizer, frozenset("pan")).readable
