"""No sequence of words twice: every search against naive rules; and which translations count as loops."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.translation.decoding.toy import Toy, beam, every_translation, greedy, some_sources

from regard.errors import ConfigurationError
from regard.translation.decoding.hypothesis import Hypothesis, completing, loops
from regard.translation.decoding.search import Search, translate_batch
from regard.translation.models.ensemble import Ensemble
from regard.translation.text.tokenizer import BOS, EOS, PAD

ROWS = st.integers(0, 9).flatmap(
    lambda length: st.lists(
        st.lists(st.integers(4, 7), min_size=length, max_size=length), min_size=1, max_size=4
    )
)


def sequences(tokens: list[int], size: int) -> list[tuple[int, ...]]:
    return [tuple(tokens[i : i + size]) for i in range(len(tokens) - size + 1)]


def repeats(tokens: list[int], size: int) -> bool:
    runs = sequences(tokens, size)
    return len(set(runs)) < len(runs)


@given(ROWS, st.integers(1, 4))
def test_a_word_is_found_exactly_when_it_would_complete_a_known_sequence(rows, size):
    repeating = set(
        zip(*(each.tolist() for each in completing(torch.tensor(rows).long(), size)), strict=True)
    )
    naive = {
        (place, word)
        for place, row in enumerate(rows)
        for word in range(4, 8)
        if tuple([*row, word][-size:]) in sequences(row, size) and len(row) >= size
    }
    assert repeating == naive


@cache
def translations_of_four_words() -> list[list[Hypothesis]]:
    """All those of 20 sentences, the best first."""
    model, (source, lengths) = Toy(vocabulary=7), some_sources(20)
    alone = [(source[i : i + 1], lengths[i : i + 1]) for i in range(len(source))]
    return [
        [one for one in every_translation(model, *sentence, 4) if len(one.tokens) == 4]
        for sentence in alone
    ]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_wide_beam_finds_the_best_translation_without_repetition(size, compiled):
    model, (source, lengths) = Toy(vocabulary=7), some_sources(20)
    limits = {"max_length": 4, "min_length": 4, "no_repeat_ngram": size}
    hypotheses = beam(model, source, lengths, size=70, **limits, compiled=compiled)
    change_count = 0
    for (best,), candidates in zip(hypotheses, translations_of_four_words(), strict=True):
        expected = next(one for one in candidates if not repeats(one.tokens, size))
        assert best.tokens == expected.tokens
        assert best.log_probability == pytest.approx(expected.log_probability, abs=1e-4)
        change_count += candidates[0].tokens != best.tokens
    assert change_count


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_greedy_search_takes_the_best_word_that_repeats_nothing(size, compiled):
    model, (source, lengths) = Toy(ends=-3.0), some_sources(5)
    hypotheses = greedy(
        model, source, lengths, max_length=12, no_repeat_ngram=size, compiled=compiled
    )
    for i, (hypothesis,) in enumerate(hypotheses):
        assert hypothesis.tokens == naive_greedy(
            model, source[i : i + 1], lengths[i : i + 1], 12, size
        )
    assert hypotheses != greedy(model, source, lengths, max_length=12)


def naive_greedy(model: Toy, source, lengths, longest: int, size: int) -> list[int]:
    words: list[int] = []
    while len(words) < longest:
        logits = model.logits(model.hidden(source, lengths, torch.tensor([[BOS, *words]])))[0, -1]
        for word in logits.argsort(descending=True, stable=True).tolist():
            if word == EOS:
                return words
            if word not in (PAD, BOS) and not repeats([*words, word], size):
                words.append(word)
                break
    return words


@given(st.integers(0, 1000), st.integers(1, 3))
def test_a_draw_repeats_nothing_and_the_same_draw_without_the_rule_does(seed, size):
    model, sources = Toy(ends=-4.0, seed=seed % 7), some_sources(3, seed)
    settings = {"sampling": True, "nbest": 3, "max_length": 30, "length_margin": 30}
    hypotheses = translate_batch(
        model,
        *sources,
        Search(**settings, no_repeat_ngram=size),
        generator=torch.Generator().manual_seed(seed),
    )
    free = translate_batch(
        model, *sources, Search(**settings), generator=torch.Generator().manual_seed(seed)
    )
    assert not any(repeats(one.tokens, size) for found in hypotheses for one in found)
    assert any(repeats(one.tokens, size) for found in free for one in found)


@pytest.mark.parametrize("width", [1, 4])
def test_a_prefix_may_repeat_itself_and_what_follows_may_not(width):
    model, sources = Toy(ends=-5.0), some_sources(3)
    settings = Search(beam=width, max_length=12, no_repeat_ngram=2)
    prefix = [[4, 4, 4], [5, 6, 5, 6], []]
    for beginning, (best, *_) in zip(
        prefix, translate_batch(model, *sources, settings, prefix=prefix), strict=True
    ):
        assert best.tokens[: len(beginning)] == beginning
        assert len(best.tokens) > len(beginning)
        known_runs = set(sequences(beginning, 2))
        following = sequences(best.tokens, 2)[max(0, len(beginning) - 1) :]
        assert len(set(following)) == len(following)
        assert known_runs.isdisjoint(following)


@pytest.mark.parametrize("width", [1, 4])
def test_several_models_and_the_n_best_keep_the_rule(width):
    model, sources = Toy(ends=-5.0), some_sources(3)
    settings = Search(beam=width, nbest=width, max_length=12, no_repeat_ngram=2)
    together = translate_batch(Ensemble([model, Toy(seed=3)]), *sources, settings)
    assert not any(repeats(one.tokens, 2) for hypotheses in together for one in hypotheses)


def test_a_size_below_0_is_refused():
    with pytest.raises(ConfigurationError, match="no_repeat_ngram -1: use a whole number"):
        Search(no_repeat_ngram=-1)


@given(st.lists(st.integers(4, 99), min_size=3, max_size=6, unique=True), st.integers(4, 9))
def test_a_block_that_is_written_again_and_again_is_a_loop_unless_the_source_has_it(block, times):
    prefix = list(range(100, 110))
    assert loops([*prefix, *block * times], prefix)
    assert not loops(prefix + block * times, prefix + block * times)


@given(st.lists(st.integers(4, 500), max_size=60, unique=True), st.lists(st.integers(4, 9)))
def test_different_words_are_no_loop_whatever_the_source(translation, source):
    assert not loops(translation, source)


def test_one_sequence_that_occurs_twice_is_no_loop():
    assert not loops([4, 5, 6, 7, 8, 9, 4, 5, 6, 7, 10, 11], [])
