"""Quality: a probability that falls where translations are bad, learnt from lines with references."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.translation.calibration import fit, held_out, quality_of
from regard.translation.doubts import agreement, features
from regard.translation.results import Translation, Word
from regard.translation.translator import Translator


@pytest.fixture(scope="module")
def spanish() -> Translator:
    return Translator.open("es-en")


def lines(count: int) -> tuple[list[Translation], list[float]]:
    """Translations whose chrF follows the probability of their words, with noise."""
    draw = np.random.default_rng(1)
    probabilities = draw.uniform(0.1, 1, count)
    scores = np.clip(100 * probabilities - 10 + 10 * draw.normal(size=count), 0, 100)
    translations = [
        Translation(
            "hola",
            "hello",
            log_probability=2 * float(np.log(p)),
            words=[Word("hello", p)],
            source_ids=[5],
            target_ids=[6],
            target_pieces=["hello", "</s>"],
            agreement=float(p),
        )
        for p in probabilities
    ]
    return translations, scores.tolist()


def test_quality_falls_with_the_score_and_is_calibrated():
    translations, scores = lines(1000)
    quality = quality_of(translations, scores)
    assert quality is not None
    values = np.array([quality.of(features(translation)) for translation in translations])
    bad = np.array(scores) < 25
    assert values[bad].mean() < values[~bad].mean() - 0.3
    assert values.mean() == pytest.approx(1 - bad.mean(), abs=0.01)
    marked = values <= quality.limit
    assert (np.array(scores)[marked] < np.median(scores)).mean() >= 0.85


def test_too_few_bad_lines_teach_nothing():
    translations, scores = lines(1000)
    rows = [row for row, score in enumerate(scores) if score >= 25]
    assert quality_of([translations[row] for row in rows], [scores[row] for row in rows]) is None


def test_the_regression_is_the_minimum_of_its_loss():
    draw = np.random.default_rng(2)
    rows = draw.normal(size=(300, 3)) * [1, 5, 0.1] + [0, 3, 1]
    good = rows[:, 0] + draw.normal(size=300) > 0
    quality = fit(rows, good)

    def loss(weights):
        varied = quality.model_copy(update={"weights": list(weights)})
        probabilities = varied.probabilities(rows)
        likelihood = np.log(np.where(good, probabilities, 1 - probabilities)).sum()
        return -likelihood + 1.5 * float(np.square(weights).sum())

    best = np.array(quality.weights)
    for step in np.vstack([np.eye(3), -np.eye(3)]) * 1e-2:
        assert loss(best + step) > loss(best)


def test_no_line_is_judged_by_what_it_taught():
    """The labels are noise, so that a regression which had seen them would seem better than chance."""
    draw = np.random.default_rng(3)
    rows, good = draw.normal(size=(60, 30)), draw.integers(0, 2, 60) == 1
    fitted, unseen = fit(rows, good).probabilities(rows), held_out(rows, good)
    assert fitted[good].mean() - fitted[~good].mean() > 0.2
    assert abs(unseen[good].mean() - unseen[~good].mean()) < 0.2


@given(st.text(max_size=20), st.lists(st.text(max_size=20), max_size=4))
def test_agreement_is_a_share(text, texts):
    assert 0 <= agreement(text, texts) <= 1
    assert agreement(text, [text.upper().lower()] if text.isascii() else []) == 1


def test_translations_have_a_quality_and_lines_the_least_of_their_sentences(spanish):
    good, number, empty, line = spanish.translate(
        ["Hace frío.", "25.000", "", "Hace frío. ¿Cómo estás? La zarzuela desparrama churumbeles."]
    )
    assert 0.9 < good.quality <= 1
    assert (number.quality, empty.quality) == (1.0, None)
    assert line.quality == min(sentence.quality for sentence in line.sentences)
    assert line.quality < good.quality


def test_a_search_without_other_hypotheses_takes_the_mean_of_their_agreement(spanish):
    (translation,) = spanish.translate(["Hace frío."], beam=1)
    assert translation.agreement is None
    assert np.isnan(features(translation)[2])
    assert 0 < translation.quality <= 1


def test_asking_for_more_translations_changes_neither_the_first_nor_its_quality_much(spanish):
    search = spanish.search.changed(nbest=3)
    (single,), (several,) = (spanish.translate(["Hace frío."], search=s) for s in (None, search))
    assert (len(single.alternatives), len(several.alternatives)) == (1, 3)
    assert single.text == several.text
    assert single.quality == pytest.approx(several.quality, abs=0.1)


def test_a_beginning_that_was_asked_for_has_no_quality(spanish):
    (translation,) = spanish.translate(["Hace frío."], prefix="The weather")
    assert translation.quality is None


def test_models_without_the_statistic_have_no_quality(spanish, monkeypatch):
    doubts = spanish.doubts.model_copy(update={"quality": None})
    monkeypatch.setattr(spanish, "doubts", doubts)
    assert [one.quality for one in spanish.translate(["Hace frío.", "25", ""])] == [None] * 3
