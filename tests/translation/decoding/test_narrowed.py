"""Short lists of words: the search of a model that knows no other words, whatever else is in the batch."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.translation.decoding.toy import EOS, Toy, some_sources
from torch import Tensor

from regard.errors import ConfigurationError
from regard.translation.decoding.forced import rerank
from regard.translation.decoding.hypothesis import Hypothesis
from regard.translation.decoding.search import Search, translate_batch

SEARCHES = {
    "greedy": Search(beam=1, max_length=6),
    "beam": Search(beam=3, nbest=3, max_length=6),
}
VOCABULARY = 12
WORDS = st.sets(st.integers(4, VOCABULARY - 1), min_size=1)


class Limited(Toy):
    """A toy that gives some words no probability: what a list asks for, said in the model."""

    allowed: Tensor

    def logits(self, hidden: Tensor) -> Tensor:
        barred = torch.full((VOCABULARY,), -torch.inf)
        barred[self.allowed] = barred[EOS] = 0
        return super().logits(hidden) + barred


def check_alike(found: list[Hypothesis], expected: list[Hypothesis]) -> None:
    assert [one.tokens for one in found] == [one.tokens for one in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-5)
        assert one.token_log_probabilities == pytest.approx(other.token_log_probabilities, abs=1e-5)


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
@given(seed=st.integers(0, 99), words=WORDS)
def test_a_list_is_a_model_without_the_other_words(search, seed, words):
    sources, listed = some_sources(1, seed), torch.tensor(sorted(words))
    limited = Limited(VOCABULARY, seed=seed)
    limited.allowed = listed
    (expected,) = translate_batch(limited, *sources, search)
    (found,) = translate_batch(Toy(VOCABULARY, seed=seed), *sources, search, lists=[listed])
    check_alike(found, expected)


def test_the_whole_model_says_which_hypothesis_looked_at_all_of_the_source():
    model, sources = Toy(VOCABULARY, seed=1), some_sources(6, 1)
    lists = [torch.arange(4, 4 + 3 + i) for i in range(5)] + [torch.tensor([5, 9])]
    search = Search(beam=3, nbest=3, max_length=6)
    found = translate_batch(model, *sources, search, lists=lists)
    expected = rerank(model, *sources, found, 2.0)
    assert expected != found
    penalised = search.changed(coverage_penalty=2.0)
    assert translate_batch(model, *sources, penalised, lists=lists) == expected


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
@given(seed=st.integers(0, 99), lists=st.lists(WORDS, min_size=4, max_size=4))
def test_what_else_is_in_the_batch_changes_nothing(search, seed, lists):
    model, (source, lengths) = Toy(VOCABULARY, seed=seed), some_sources(4, seed)
    listed = [torch.tensor(sorted(words)) for words in lists]
    together = translate_batch(model, source, lengths, search, lists=listed)
    for row, (found, words) in enumerate(zip(together, lists, strict=True)):
        only = slice(row, row + 1)
        (alone,) = translate_batch(model, source[only], lengths[only], search, lists=listed[only])
        check_alike(found, alone)
        assert not set(found[0].tokens) - words


def test_all_words_are_no_limit():
    model, sources = Toy(VOCABULARY, seed=2), some_sources(5)
    for search in SEARCHES.values():
        every = [torch.arange(4, VOCABULARY)] * 5
        found = translate_batch(model, *sources, search, lists=every)
        expected = translate_batch(model, *sources, search)
        assert [one[0].tokens for one in found] == [one[0].tokens for one in expected]


def test_each_draw_is_of_its_sentences_list():
    lists = [torch.tensor([4, 7]), torch.tensor([5, 6, 11])]
    search = Search(sampling=True, nbest=20, max_length=6, temperature=5)
    found = translate_batch(Toy(VOCABULARY), *some_sources(2), search, lists=lists)
    for hypotheses, words in zip(found, lists, strict=True):
        drawn = {word for one in hypotheses for word in one.tokens}
        assert drawn == set(words.tolist())


def test_lists_that_make_no_sense_are_refused():
    model, sources, lists = Toy(VOCABULARY), some_sources(2), [torch.tensor([4])] * 2
    with pytest.raises(ConfigurationError, match="a prefix or lists of words"):
        translate_batch(model, *sources, prefix=[[4], [5]], lists=lists)
    with pytest.raises(ConfigurationError, match="1 lists of words for 2 sentences"):
        translate_batch(model, *sources, lists=lists[:1])
    for unordered in ([5, 4], [4, 4], [-5, 4]):
        with pytest.raises(ConfigurationError, match="not in ascending order"):
            translate_batch(model, *sources, lists=[torch.tensor(unordered), lists[0]])


def test_no_sentences_have_no_lists():
    source, lengths = some_sources(2)
    assert translate_batch(Toy(VOCABULARY), source[:0], lengths[:0], lists=[]) == []
