"""The best words of compiled loops and of torch: the same, in the same order."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard.errors import ModelError
from regard.translation.decoding.limits import Limits, best_words
from regard.translation.settings.search import Search
from regard.translation.text.tokenizer import EOS

NOTHING = torch.empty(1, 1, 0, dtype=torch.int64)


def plainly(logits: Tensor, limits: Limits, words: Tensor, count: int) -> tuple[Tensor, Tensor]:
    return best_words(logits, limits, words, count, compiled=False)


@given(
    st.integers(0, 10_000),
    st.sampled_from([5, 8, 64, 65, 200, 331]),
    st.integers(1, 7),
    st.integers(1, 3),
    st.integers(0, 3),
    st.booleans(),
    st.integers(0, 2),
)
def test_both_ways_find_the_same(
    seed: int,
    vocabulary: int,
    count: int,
    per_sentence: int,
    length: int,
    has_prefix: bool,
    ngram: int,
):
    generator = torch.Generator().manual_seed(seed)
    # Halves: many are equal, and of equals the first comes first.
    logits = torch.randint(-6, 7, (3 * per_sentence, vocabulary), generator=generator) / 2.0
    prefix = [[4, 4], [], [1, 4, 4]] if has_prefix else None
    limits = Limits.of(torch.tensor([0, 2, 9]), Search(min_length=1, no_repeat_ngram=ngram), prefix)
    original = torch.randint(4, vocabulary, (3, per_sentence, length), generator=generator)
    log_p, words = best_words(logits, limits, original, count, compiled=True)
    expected, places = plainly(logits, limits, original, count)
    possible = expected.isfinite()
    assert torch.equal(log_p.isfinite(), possible)
    assert torch.equal(words[possible], places[possible])
    torch.testing.assert_close(log_p, expected, atol=2e-6, rtol=2e-6)


def test_log_probabilities_stay_as_they_are():
    log_p = torch.randn(2, 70, generator=torch.Generator().manual_seed(5)).log_softmax(1)
    log_p[:, 0] = -torch.inf
    limits, tokens = Limits(torch.tensor([5, 5])), NOTHING.expand(2, 1, 0)
    values, words = best_words(log_p - 3, limits, tokens, 1, compiled=True, normalised=True)
    assert torch.equal(values, (log_p - 3).gather(1, words))
    assert torch.equal(words, best_words(log_p, limits, tokens, 1, compiled=True)[1])


def test_logits_are_left_as_they_were():
    logits = torch.randn(2, 70)
    copy_before = logits.clone()
    limits = Limits.of(torch.tensor([5, 5]), Search(), [[4], [5]])
    candidates = best_words(logits, limits, NOTHING.expand(2, 1, 0), 1, compiled=True)
    assert candidates[1].flatten().tolist() == [4, 5]
    assert torch.equal(logits, copy_before)


def test_a_word_without_probability_is_never_found():
    logits = torch.full((1, 100), -torch.inf)
    logits[0, [EOS, 70]] = 0.0
    log_p, words = best_words(logits, Limits(torch.tensor([5])), NOTHING, 4, compiled=True)
    assert words[0, :2].tolist() == [EOS, 70]
    assert log_p.isfinite().tolist() == [[True, True, False, False]]


@pytest.mark.parametrize("fault", [torch.nan, torch.inf])
@pytest.mark.parametrize("place", [0, 63, 64, 129])
def test_what_is_no_number_is_told(fault: float, place: int):
    logits = torch.zeros(2, 130)
    logits[1, place] = fault
    with pytest.raises(ModelError, match="not a number"):
        best_words(logits, Limits(torch.tensor([5, 5])), NOTHING.expand(2, 1, 0), 2, compiled=True)


def test_log_probabilities_that_are_no_numbers_are_told():
    log_p, limits = torch.full((1, 130), torch.nan), Limits(torch.tensor([5]))
    with pytest.raises(ModelError, match="not a number"):
        best_words(log_p, limits, NOTHING, 1, compiled=True, normalised=True)
