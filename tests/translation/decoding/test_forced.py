"""Given translations: their scores and looks, and the coverage that is reckoned from these."""

from __future__ import annotations

import math

import pytest
import torch
from tests.translation.decoding.toy import Toy, beam, one_by_one, some_sources

from regard.attention.looks import StoredLook
from regard.errors import ConfigurationError, ModelError
from regard.translation.decoding.forced import coverage, cross, last_cross, looks, rerank, score
from regard.translation.decoding.hypothesis import penalty


def test_search_and_forced_scores_agree():
    model, sources = Toy(), some_sources(4)
    best = [one[0] for one in beam(model, *sources, size=4, max_length=6, length_penalty=0.6)]
    forced = score(model, *sources, [one.tokens for one in best], length_penalty=0.6)
    assert len({len(one.tokens) for one in best}) > 1
    for ours, expected in zip(best, forced, strict=True):
        assert ours.tokens == expected.tokens
        assert ours.score == pytest.approx(expected.score, abs=1e-5)
        assert ours.token_log_probabilities == pytest.approx(
            expected.token_log_probabilities, abs=1e-5
        )


def test_any_translation_can_be_scored():
    model, (source, lengths) = Toy(), some_sources(3)
    translations = [[], [5, 1, 7, 7, 4], [6]]
    for i, forced in enumerate(score(model, source, lengths, translations, length_penalty=0.3)):
        alone = one_by_one(model, source[i : i + 1], lengths[i : i + 1], translations[i], 0.3)
        assert forced.log_probability == pytest.approx(alone.log_probability, abs=1e-5)
        assert len(forced.token_log_probabilities) == len(translations[i]) + 1
        assert forced.score == pytest.approx(
            forced.log_probability / penalty(len(translations[i]) + 1, 0.3)
        )


def test_scores_do_not_depend_on_how_many_are_worked_out_at_a_time(monkeypatch: pytest.MonkeyPatch):
    arguments = (Toy(), *some_sources(3), [[5, 6], [7], [4, 4, 4]])
    whole_scores = score(*arguments)
    monkeypatch.setattr("regard.translation.decoding.forced._ROWS", 2)
    scores = score(*arguments)
    assert [one.token_log_probabilities for one in scores] == [
        pytest.approx(one.token_log_probabilities, abs=1e-6) for one in whole_scores
    ]


def test_looks_have_a_row_for_each_token_and_the_end():
    source, lengths = some_sources(2)
    weights = looks(Toy(), source, lengths, [[5, 6, 7], [5]])["decoder.0.cross"].weights()
    assert weights.shape == (2, 1, 4, 5)
    assert torch.allclose(weights.sum(-1), torch.ones(2, 1, 4))


def test_a_translation_too_few_is_refused_and_a_broken_model_is_told():
    with pytest.raises(ConfigurationError, match="1 translations for 2 sources"):
        score(Toy(), *some_sources(2), [[5]])
    model = Toy()
    model.shift[4] = math.nan
    with pytest.raises(ModelError, match="not a number"):
        score(model, *some_sources(2), [[5], [6]])


def test_coverage_counts_no_word_twice():
    weights = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    assert coverage(weights[:2, :2]) == pytest.approx(math.log(0.5))
    assert coverage(weights) == pytest.approx(math.log(0.5))
    assert coverage(weights[:2]) == pytest.approx(math.log(0.5) + math.log(1e-6))
    assert coverage(torch.eye(3)) == 0


def test_what_hypotheses_looked_at_has_no_padding():
    model, (source, lengths) = Toy(), some_sources(4)
    actual_hypotheses = beam(model, source, lengths, size=3, nbest=2, max_length=5)
    for i, (hypotheses, matrices) in enumerate(
        zip(actual_hypotheses, cross(model, source, lengths, actual_hypotheses), strict=True)
    ):
        for hypothesis, matrix in zip(hypotheses, matrices, strict=True):
            alone = source[i : i + 1, : lengths[i]], lengths[i : i + 1]
            expected = looks(model, *alone, [hypothesis.tokens])["decoder.0.cross"].weights()[0, 0]
            assert torch.allclose(matrix, expected, atol=1e-6)
    assert cross(model, source[:0], lengths[:0], []) == []


def test_the_last_layer_counts_and_the_mean_of_its_heads_and_of_the_models():
    def look(value: float) -> StoredLook:
        return StoredLook(torch.tensor([[[[value]], [[value + 2]]]]))

    looks = {"encoder.11.self": look(50), "decoder.9.cross": look(7), "decoder.10.cross": look(1)}
    assert last_cross(looks).tolist() == [[[2.0]]]
    two = {"0.decoder.0.cross": look(1), "1.decoder.0.cross": look(9), "1.decoder.3.cross": look(3)}
    assert last_cross(two).tolist() == [[[3.0]]]
    assert last_cross({"decoder.0.self": look(1)}) is None


def test_a_coverage_penalty_ranks_anew_by_the_formula():
    model, (source, lengths) = Toy(), some_sources(6)
    hypotheses = beam(model, source, lengths, size=5, nbest=5, max_length=6)
    reranked = rerank(model, source, lengths, hypotheses, 2.0)
    change_count = 0
    for i, (original, ranked) in enumerate(zip(hypotheses, reranked, strict=True)):
        scores = {tuple(one.tokens): one.score for one in original}
        assert {tuple(one.tokens) for one in ranked} == set(scores)
        assert [one.score for one in ranked] == sorted((o.score for o in ranked), reverse=True)
        change_count += original[0].tokens != ranked[0].tokens
        for hypothesis in ranked:
            read = looks(model, source[i : i + 1], lengths[i : i + 1], [hypothesis.tokens])
            received = read["decoder.0.cross"].weights()[0, 0, :, : lengths[i]].sum(0)
            bonus = 2.0 * float(received.clamp(max=1).log().sum())
            assert hypothesis.score == pytest.approx(
                scores[tuple(hypothesis.tokens)] + bonus, abs=1e-4
            )
    assert change_count


def test_coverage_of_a_model_without_attention_is_refused():
    class Blind(Toy):
        def looks(self, *_: torch.Tensor) -> dict[str, object]:
            return {}

    hypotheses = beam(Blind(), *some_sources(1), size=2, max_length=3)
    with pytest.raises(ConfigurationError, match="does not look at the source"):
        rerank(Blind(), *some_sources(1), hypotheses, 1.0)
