"""Beam search against all translations there are, and against greedy search."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.translation.decoding.toy import (
    BOS,
    EOS,
    PAD,
    Tied,
    Toy,
    beam,
    every_translation,
    greedy,
    one_by_one,
    some_sources,
)

from regard.errors import ConfigurationError, ModelError
from regard.translation.decoding.search import translate_batch

SETTINGS = {
    "seed": st.integers(0, 10_000),
    "length_penalty": st.floats(0, 2),
    "ends": st.floats(-3, 3),
    "longest": st.integers(0, 4),
    "compiled": st.booleans(),
}


@given(**SETTINGS)
def test_a_beam_that_holds_everything_finds_the_best_of_all(
    seed: int, length_penalty: float, ends: float, longest: int, compiled: bool
):
    model, (source, lengths) = Toy(vocabulary=6, seed=seed, ends=ends), some_sources(2, seed)
    settings = {"length_penalty": length_penalty, "max_length": longest, "compiled": compiled}
    hypotheses = beam(model, source, lengths, size=130, nbest=5, **settings)
    for i in range(2):
        all_translations = every_translation(
            model, source[i : i + 1], lengths[i : i + 1], longest, length_penalty
        )
        assert [one.score for one in hypotheses[i]] == pytest.approx(
            [one.score for one in all_translations[:5]], abs=1e-5
        )


@given(**SETTINGS, size=st.integers(2, 5), nbest=st.integers(1, 2), repeats=st.sampled_from([0, 1]))
def test_a_beam_ends_only_when_none_can_become_better(
    seed: int,
    length_penalty: float,
    ends: float,
    longest: int,
    compiled: bool,
    size: int,
    nbest: int,
    repeats: int,
):
    model, (source, lengths) = Toy(seed=seed, ends=ends), some_sources(3, seed)
    actual_hypotheses = beam(
        *(model, source, lengths),
        size=size,
        nbest=nbest,
        compiled=compiled,
        no_repeat_ngram=repeats,
        length_penalty=length_penalty,
        max_length=2 * longest,
    )
    for i, hypotheses in enumerate(actual_hypotheses):
        sentence = source[i : i + 1], lengths[i : i + 1]
        ended = to_the_end(
            model, *sentence, size, 2 * longest, length_penalty, unlike=bool(repeats)
        )
        assert [each.score for each in hypotheses] == pytest.approx(ended[:nbest], abs=1e-5)


def to_the_end(
    model: Toy,
    source: torch.Tensor,
    lengths: torch.Tensor,
    size: int,
    longest: int,
    exponent: float,
    *,
    unlike: bool,
) -> list[float]:
    """The scores of all hypotheses of a beam that grows to the greatest length, the best first."""
    live: list[tuple[float, list[int]]] = [(0.0, [])]
    scores = []
    for count in range(longest + 1):
        grown = []
        for total, tokens in live:
            hidden = model.hidden(source, lengths, torch.tensor([[BOS, *tokens]]))
            log_p = model.logits(hidden)[0, -1].double().log_softmax(-1).tolist()
            for word, log_probability in enumerate(log_p):
                allowed = word == EOS or (count < longest and not (unlike and word in tokens))
                if word not in (PAD, BOS) and allowed:
                    grown.append((total + log_probability, [*tokens, word]))
        grown.sort(key=lambda hypothesis: -hypothesis[0])
        best = [total for total, tokens in grown[:size] if tokens[-1] == EOS]
        scores += [total / ((6 + count) / 6) ** exponent for total in best]
        live = [one for one in grown[: 2 * size] if one[1][-1] != EOS][:size]
    return sorted(scores, reverse=True)


@given(st.integers(0, 10_000), st.integers(1, 9), st.floats(-2, 3))
def test_size_1_is_greedy(seed: int, max_length: int, ends: float):
    model, sources = Toy(seed=seed, ends=ends), some_sources(4, seed)
    assert beam(model, *sources, size=1, patience=1, max_length=max_length) == greedy(
        model, *sources, max_length=max_length
    )


@given(st.integers(0, 10_000), st.integers(1, 6), st.floats(-2, 3))
def test_hypotheses_are_sorted_distinct_and_scored_as_a_forced_translation_is(
    seed: int, size: int, ends: float
):
    model, (source, lengths) = Toy(seed=seed, ends=ends), some_sources(3, seed)
    actual_hypotheses = beam(
        model, source, lengths, size=size, nbest=size, max_length=6, length_penalty=0.7
    )
    for i, hypotheses in enumerate(actual_hypotheses):
        scores = [hypothesis.score for hypothesis in hypotheses]
        assert len(hypotheses) == size
        assert scores == sorted(scores, reverse=True)
        assert len({tuple(hypothesis.tokens) for hypothesis in hypotheses}) == size
        for hypothesis in hypotheses:
            alone = one_by_one(model, source[i : i + 1], lengths[i : i + 1], hypothesis.tokens, 0.7)
            assert hypothesis.score == pytest.approx(alone.score, abs=1e-5)
            assert hypothesis.token_log_probabilities == pytest.approx(
                alone.token_log_probabilities, abs=1e-5
            )


@given(st.integers(0, 10_000), st.floats(-2, 3))
def test_company_changes_nothing(seed: int, ends: float):
    model, (source, lengths) = Toy(seed=seed, ends=ends), some_sources(4, seed)
    together = beam(model, source, lengths, size=3, nbest=2, max_length=7)
    for i in range(4):
        alone = beam(model, source[i : i + 1], lengths[i : i + 1], size=3, nbest=2, max_length=7)
        assert [one.tokens for one in together[i]] == [one.tokens for one in alone[0]]


def test_finished_sentences_leave_the_batch_and_the_first_step_makes_no_copies():
    model, sources = Toy(seed=3, ends=1.0), some_sources(6, 3)
    beam(model, *sources, size=4, max_length=torch.tensor([1, 2, 3, 4, 5, 6]))
    assert model.rows_read[0] == 6
    assert model.rows_read[1] <= 24
    assert model.rows_read == [model.rows_read[0], *sorted(model.rows_read[1:], reverse=True)]
    assert model.rows_read[-1] < 24


def test_every_sentence_keeps_to_its_own_longest():
    longest = torch.tensor([0, 1, 3, 6])
    actual_hypotheses = beam(Toy(ends=-30.0), *some_sources(4), size=3, nbest=3, max_length=longest)
    for limit, hypotheses in zip(longest.tolist(), actual_hypotheses, strict=True):
        assert {len(one.tokens) for one in hypotheses} == {limit}


def test_min_length_is_kept():
    sources = some_sources(3)
    short = beam(Toy(ends=6.0), *sources, size=2, max_length=6)
    assert {len(hypothesis[0].tokens) for hypothesis in short} == {0}
    for hypothesis in beam(Toy(ends=6.0), *sources, size=2, nbest=2, max_length=6, min_length=3):
        assert min(len(one.tokens) for one in hypothesis) == 3


def test_a_prefix_begins_every_hypothesis_and_counts_in_its_score():
    model, (source, lengths) = Toy(), some_sources(3)
    prefix = [[5, 6, 5], [], [7]]
    actual_hypotheses = beam(model, source, lengths, size=3, nbest=3, max_length=5, prefix=prefix)
    for i, (beginning, hypotheses) in enumerate(zip(prefix, actual_hypotheses, strict=True)):
        for hypothesis in hypotheses:
            assert hypothesis.tokens[: len(beginning)] == beginning
            alone = one_by_one(model, source[i : i + 1], lengths[i : i + 1], hypothesis.tokens, 1.0)
            assert hypothesis.score == pytest.approx(alone.score, abs=1e-5)
    assert (
        actual_hypotheses[1]
        != beam(model, source, lengths, size=3, max_length=5, prefix=[[5]] * 3)[1]
    )


def test_a_longer_penalty_gives_longer_translations():
    sources = some_sources(20)
    plain, penalised = (
        beam(Toy(ends=1.0), *sources, size=5, max_length=8, length_penalty=alpha)
        for alpha in (0.0, 2.0)
    )
    length = [sum(len(one[0].tokens) for one in found) for found in (plain, penalised)]
    assert length[0] < length[1]


def test_without_patience_a_search_may_end_before_its_best_hypothesis():
    model, sources = Toy(ends=2.0), some_sources(30)
    hasty = beam(model, *sources, size=2, max_length=9, length_penalty=2.0, patience=1)
    patient = beam(model, *sources, size=2, max_length=9, length_penalty=2.0)
    pairs = list(zip(hasty, patient, strict=True))
    assert all(quick[0].score <= slow[0].score + 1e-6 for quick, slow in pairs)
    assert any(quick[0].score < slow[0].score - 1e-3 for quick, slow in pairs)


def test_padding_and_beginnings_are_never_written():
    model = Toy()
    model.shift[[PAD, BOS]] = 20.0
    for hypotheses in beam(model, *some_sources(4), size=3, nbest=3, max_length=5):
        assert not {PAD, BOS} & {token for one in hypotheses for token in one.tokens}


def test_equals_come_in_the_order_of_their_ids():
    hypothesis = beam(Tied(), *some_sources(1), size=3, nbest=3, max_length=2)[0]
    assert [one.tokens for one in hypothesis] == [[], [1], [1, 1]]


def test_logits_that_are_not_numbers_are_an_error():
    for broken in (math.nan, math.inf):
        model = Toy()
        model.shift[5] = broken
        with pytest.raises(ModelError, match="not a number"):
            beam(model, *some_sources(2), size=2, max_length=4)


def test_a_model_that_allows_nothing_is_an_error():
    model = Toy(ends=-math.inf)
    with pytest.raises(ModelError, match="probability 0"):
        beam(model, *some_sources(2), size=2, max_length=4)


def test_an_empty_batch_gives_nothing():
    nothing = torch.empty(0, 5, dtype=torch.int64), torch.empty(0, dtype=torch.int64)
    assert translate_batch(Toy(), *nothing) == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"size": 0}, "beam 0"),
        ({"size": 2, "nbest": 3}, "use a beam of at least 3"),
        ({"size": 2, "prefix": [[5]]}, "1 prefixes for 2 sentences"),
        ({"size": 2, "prefix": [[5], [3]]}, "a prefix has the id of padding"),
        ({"size": 2, "prefix": [[5], [99]]}, "id 99: this model knows 0 to 7"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, object], message: str):
    with pytest.raises(ConfigurationError, match=message):
        beam(Toy(), *some_sources(2), **{"max_length": 4, **settings})
