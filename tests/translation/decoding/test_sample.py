"""Sampling: what may be drawn, how often, and what is said about it."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from tests.translation.decoding.toy import (
    Toy,
    every_translation,
    greedy,
    one_by_one,
    sample,
    some_sources,
)

from regard.errors import ConfigurationError, ModelError
from regard.translation.decoding.search import keep_probable


def chance(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_translations_are_drawn_as_often_as_they_are_probable():
    model, (source, lengths) = Toy(vocabulary=6, ends=1.0), some_sources(1)
    model.shift[[0, 2]] = -math.inf
    batch = source.expand(4, -1), lengths.expand(4)
    samples = sample(model, *batch, max_length=20, draws=1000, generator=chance())
    draws_of_all = [one for draws in samples for one in draws]
    counts = Counter(tuple(one.tokens) for one in draws_of_all)
    for translation in every_translation(model, source, lengths, 3)[:8]:
        expected = math.exp(translation.log_probability)
        assert counts[tuple(translation.tokens)] / 4000 == pytest.approx(expected, abs=0.025)


def test_one_generator_state_gives_one_result():
    model, sources = Toy(), some_sources(3)
    first_draws, repeated_draws, other_draws = (
        sample(model, *sources, max_length=6, draws=3, generator=chance(seed)) for seed in (1, 1, 2)
    )
    assert first_draws == repeated_draws
    assert first_draws != other_draws


@pytest.mark.parametrize("settings", [{"top_k": 1}, {"top_p": 1e-6}, {"temperature": 0.01}])
def test_at_the_extremes_it_is_greedy(settings: dict[str, float]):
    model, sources = Toy(), some_sources(5)
    samples = sample(model, *sources, max_length=6, generator=chance(), **settings)
    for (item,), (best,) in zip(samples, greedy(model, *sources, max_length=6), strict=True):
        assert item.tokens == best.tokens
        assert item.score == pytest.approx(best.score, abs=1e-5)


def test_the_log_probabilities_are_those_of_the_model_and_draws_are_sorted():
    model, (source, lengths) = Toy(), some_sources(2)
    samples = sample(
        model, source, lengths, max_length=5, temperature=3.0, draws=6, top_k=4, generator=chance()
    )
    for i, draws in enumerate(samples):
        assert [one.score for one in draws] == sorted((one.score for one in draws), reverse=True)
        for draw in draws:
            alone = one_by_one(model, source[i : i + 1], lengths[i : i + 1], draw.tokens, 1.0)
            assert draw.score == pytest.approx(alone.score, abs=1e-5)


def test_a_high_temperature_spreads():
    model, sources = Toy(), some_sources(1)
    cold, hot = (
        sample(
            model,
            *sources,
            max_length=4,
            temperature=t,
            draws=200,
            min_length=4,
            generator=chance(),
        )[0]
        for t in (0.3, 5.0)
    )
    different = [len({tuple(one.tokens) for one in draws}) for draws in (cold, hot)]
    assert different[0] < different[1]


def test_top_k_and_top_p_keep_the_best():
    scores = torch.tensor([[0.1, 0.5, 0.2, 0.2]]).log()
    kept_ids = [
        (keep_probable(scores, k, p) > -math.inf).nonzero()[:, 1].tolist()
        for k, p in ((0, 1.0), (2, 1.0), (0, 0.5), (0, 0.6), (0, 0.75), (3, 0.75), (9, 0.95))
    ]
    assert kept_ids == [[0, 1, 2, 3], [1, 2], [1], [1, 2], [1, 2, 3], [1, 2], [0, 1, 2, 3]]


def test_limits_hold_while_sampling():
    model = Toy(ends=-4.0)
    samples = sample(
        model, *some_sources(2), max_length=4, prefix=[[6], [7, 7]], draws=5, generator=chance()
    )
    assert all(one.tokens[:1] == [6] for one in samples[0])
    assert all(one.tokens[:2] == [7, 7] for one in samples[1])
    assert max(len(one.tokens) for draws in samples for one in draws) <= 4


def test_nothing_to_draw_is_an_error():
    with pytest.raises(ModelError, match="probability 0"):
        sample(Toy(ends=-math.inf), *some_sources(2), max_length=1, generator=chance())


@pytest.mark.parametrize(
    "settings",
    [{"temperature": math.nan}, {"top_k": -1}, {"top_p": 0.0}],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, float]):
    with pytest.raises(ConfigurationError, match=next(iter(settings))):
        sample(Toy(), *some_sources(2), max_length=4, **settings)
