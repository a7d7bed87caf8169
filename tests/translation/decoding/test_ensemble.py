"""Several models as one: the mean of their probabilities, whatever they are made of."""

from __future__ import annotations

import math

import pytest
import torch
from tests.translation.decoding.toy import BOS, EOS, Toy, beam, some_sources
from torch import nn

from regard.errors import ConfigurationError, ModelError
from regard.translation.decoding import forced
from regard.translation.decoding.forced import cross
from regard.translation.decoding.search import Search, translate_batch
from regard.translation.models.ensemble import Ensemble, mean_log


def two() -> tuple[Toy, Toy]:
    return Toy(seed=1), Toy(width=9, seed=2)


def test_each_word_has_the_mean_of_the_probabilities():
    models, (source, lengths) = two(), some_sources(3)
    together, words = Ensemble(models), torch.tensor([[BOS, 5, 6]] * 3)
    expected = torch.stack([m(source, lengths, words).softmax(-1) for m in models]).mean(0)
    assert torch.allclose(together(source, lengths, words).exp(), expected, atol=1e-6)
    state = together.begin(source, lengths)
    for place in range(3):
        logits, state = together.step(words[:, place], state)
        assert torch.allclose(logits.exp(), expected[:, place], atol=1e-6)
        if place == 1:
            rows = torch.tensor([2, 0])
            state, words, expected = state.select(rows), words[rows], expected[rows]


def test_the_mean_is_of_probabilities_and_not_of_logits():
    sure, even = torch.tensor([[0.0, -1000.0]]), torch.tensor([[0.0, 0.0]])
    assert mean_log([sure, even]).exp().tolist() == [[0.75, 0.25]]
    assert mean_log([even, even]).exp().tolist() == [[0.5, 0.5]]


def test_a_search_finds_what_exhausting_it_finds():
    models, sources = two(), some_sources(5)
    together = Ensemble(models)
    hypotheses = beam(together, *sources, size=4, nbest=4, max_length=5)
    second_scores = forced.score(together, *sources, [one[0].tokens for one in hypotheses])
    for ours, second_score in zip(hypotheses, second_scores, strict=True):
        assert ours[0].log_probability == pytest.approx(second_score.log_probability, abs=1e-5)
        probabilities = [float(p) for p in ours[0].token_log_probabilities]
        assert all(p <= 0 for p in probabilities)
    alone = [beam(model, *sources, size=4, max_length=5) for model in models]
    texts = [[one[0].tokens for one in every] for every in (hypotheses, *alone)]
    assert texts[0] != texts[1]
    assert texts[0] != texts[2]


def test_a_model_with_itself_says_what_it_says_alone():
    model, sources = Toy(), some_sources(4)
    for search in (Search(beam=1), Search(beam=4, nbest=2), Search(beam=3, coverage_penalty=0.5)):
        alone = translate_batch(model, *sources, search)
        together = translate_batch(Ensemble([model, model]), *sources, search)
        assert [[o.tokens for o in one] for one in alone] == [
            [o.tokens for o in one] for one in together
        ]


def test_looks_are_those_of_each_and_their_mean_aligns():
    models, sources = two(), some_sources(2)
    looks = Ensemble(models).looks(*sources, torch.tensor([[BOS, 5]] * 2))
    assert set(looks) == {"0.decoder.0.cross", "1.decoder.0.cross"}
    one_name = "1.decoder.0.cross"
    assert set(Ensemble(models).looks(*sources, torch.tensor([[BOS, 5]] * 2), one_name)) == {
        one_name
    }
    hypotheses = beam(models[0], *sources, size=2, max_length=4)
    mean = cross(Ensemble(models), *sources, hypotheses)[0][0]
    item = [cross(model, *sources, hypotheses)[0][0] for model in models]
    assert torch.allclose(mean, (item[0] + item[1]) / 2, atol=1e-6)


def test_the_most_limited_bounds_all():
    class Short(Toy):
        longest = 3

    assert Ensemble(two()).longest is None
    together = Ensemble([*two(), Short()])
    assert together.longest == 3
    hypotheses = translate_batch(together, *some_sources(3), Search(beam=2, min_length=9))
    assert {len(one.tokens) for (one,) in hypotheses} == {2}


def test_one_broken_model_is_told():
    broken = Toy()
    broken.shift[EOS] = math.nan
    with pytest.raises(ModelError, match="not a number"):
        translate_batch(Ensemble([Toy(), broken]), *some_sources(1))


def test_no_models_and_models_apart_are_refused():
    with pytest.raises(ConfigurationError, match="give at least one"):
        Ensemble([])
    first_model, second_model = two()
    first_model.weight = nn.Parameter(torch.zeros(1))
    second_model.weight = nn.Parameter(torch.zeros(1, device="meta"))
    with pytest.raises(ConfigurationError, match="put them on one device"):
        Ensemble([first_model, second_model])
