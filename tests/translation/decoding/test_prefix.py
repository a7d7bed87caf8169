"""A forced beginning: the words that were asked for, whole, and a free choice after them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.translation.decoding.toy import BOS, EOS, PAD, Toy, some_sources

from regard.errors import ConfigurationError
from regard.translation.decoding.prefix import Prefixes
from regard.translation.decoding.search import Search, translate_batch
from regard.translation.text.tokenizer import Tokenizer

CPU = torch.device("cpu")
NEVER = float("-inf")
LINES = [
    "the cat's cat sleeps.",
    "the cats sleep, well-known cats",
    "don't the cats",
    "日本 ÑU 42",
] * 9
SEARCHES = [Search(beam=3), Search(beam=1), Search(sampling=True, temperature=5.0)]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(LINES, vocabulary_size=300)


def allowed(prefixes: Prefixes, length: int, row: int = 0) -> set[int]:
    vocabulary = 10 if prefixes.inside is None else len(prefixes.inside)
    restricted = prefixes.restrict(torch.zeros(len(prefixes.tokens), 1, vocabulary), length)
    return set((restricted[row, 0] > NEVER).nonzero().flatten().tolist())


def test_ids_are_forced_one_by_one_and_then_all_is_free():
    prefixes = Prefixes.of([[4, 5], [6], []], CPU)
    assert [allowed(prefixes, 0, row) for row in range(3)] == [{4}, {6}, set(range(10))]
    assert [allowed(prefixes, 1, row) for row in range(3)] == [{5}, set(range(10)), set(range(10))]
    assert allowed(prefixes, 2) == set(range(10))
    selected = prefixes.select(torch.tensor([2, 0]))
    assert [allowed(selected, 0, row) for row in range(2)] == [set(range(10)), {4}]


def test_what_is_forced_keeps_its_probability():
    log_p = torch.arange(10.0).expand(1, 1, 10).clone()
    restricted = Prefixes.of([[4]], CPU).restrict(log_p, 0)
    assert restricted[0, 0].tolist() == [NEVER] * 4 + [4.0] + [NEVER] * 5


@pytest.mark.parametrize("token", [PAD, BOS, EOS])
def test_special_ids_are_refused(token: int):
    with pytest.raises(ConfigurationError, match="a prefix has the id of padding"):
        Prefixes.of([[5], [6, token]], CPU)


def test_an_id_that_the_model_does_not_know_is_refused():
    with pytest.raises(ConfigurationError, match="has id 10: this model knows 0 to 9"):
        allowed(Prefixes.of([[10]], CPU), 0)


@pytest.mark.parametrize("search", SEARCHES, ids=["beam", "greedy", "sample"])
def test_every_search_starts_with_the_words_and_ends_them_there(tokenizer, search):
    model, sources = Toy(vocabulary=len(tokenizer), seed=3), some_sources(6)
    texts = ["the cat", "the", "", "sleeps.", "42", "don't"]
    partial_words = Prefixes.words(texts, tokenizer, CPU)
    limits = search.changed(min_length=8, max_length=9)
    chance = torch.Generator().manual_seed(1)
    hypotheses = translate_batch(model, *sources, limits, prefix=partial_words, generator=chance)
    for text, (hypothesis, *_) in zip(texts, hypotheses, strict=True):
        begun_with = tokenizer.encode(text)
        assert hypothesis.tokens[: len(begun_with)] == begun_with
        assert len(hypothesis.tokens) >= 8
        following = tokenizer.decode(hypothesis.tokens)[len(text) :][:1]
        if text and text != "sleeps.":
            assert not following.isalnum(), (text, tokenizer.decode(hypothesis.tokens))
            assert following not in ("'", "-")


def test_a_word_is_not_gone_on_with_but_may_be_followed(tokenizer):
    partial_words = Prefixes.words(["the cat", "sleeps.", "日本"], tokenizer, CPU)
    pieces = tokenizer.pieces(range(len(tokenizer)))

    def may_follow(row: int) -> set[str]:
        return {pieces[i] for i in allowed(partial_words, int(partial_words.lengths[row]), row)}

    allowed_next = may_follow(0)
    assert {"s", "'", "-", "<0xC3>", "<0x73>", "4"} & allowed_next == set()
    assert {"</s>", "▁", ".", ",", "<0x2E>"} <= allowed_next
    # Only letters and digits make a word that could go on; Chinese and Japanese have no spaces.
    assert may_follow(1) == may_follow(2) == set(pieces)


def test_nothing_is_forced_where_all_texts_are_empty(tokenizer):
    assert Prefixes.words([], tokenizer, CPU) is None
    assert Prefixes.words(["", " \t"], tokenizer, CPU) is None


@given(st.lists(st.text("the cats' ñ4日.", max_size=12), min_size=2, max_size=6))
def test_the_pieces_of_a_prefix_begin_the_pieces_of_every_longer_text(words):
    tokenizer = Tokenizer.train(LINES, vocabulary_size=300)
    whole_text = " ".join(words)
    for count in range(len(words)):
        partial_ids = tokenizer.encode(" ".join(words[:count]))
        assert tokenizer.encode(whole_text)[: len(partial_ids)] == partial_ids
